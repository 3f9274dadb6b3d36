"""The short version of `python -m tests.faults`: every fault strikes and nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sql.embedded import EmbeddedPostgres
from streams.kafka.broker import Broker
from tests.faults.environment import FaultEnvironment
from tests.faults.result import FaultResult
from tests.faults.suite import FAULTS, FaultSuite
from tests.faults.trial import Fault

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(900)]
SEED = 7


@pytest.fixture(scope="module")
def rows(
    kafka_broker: Broker, postgres_server: EmbeddedPostgres
) -> Iterator[dict[str, FaultResult]]:
    environment = FaultEnvironment(kafka_broker, postgres_server)
    yield {row.fault: row for row in FaultSuite(environment, SEED, minutes=1.0).run_in_sequence()}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault_loses_and_duplicates_nothing(fault: Fault, rows: dict[str, FaultResult]) -> None:
    assert list(rows[fault.name].list_problems()) == []
