"""The short version of `python -m tests.faults`: every fault strikes and nothing is lost.

`make test` breaks each kind of service once, and loses the answer of a COMMIT, which no other test
does.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sql.embedded.server import EmbeddedPostgres
from streams.kafka.broker import Broker
from tests.faults import (
    broker_killed,
    killed_workers,
    lost_commit,
    postgres_killed,
    unavailable_engine,
)
from tests.faults.environment import FaultEnvironment
from tests.faults.result import FaultResult
from tests.faults.suite import FAULTS, FaultSuite
from tests.faults.trial import Fault
from tests.support.repetitions import IS_LONG

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(900)]
SEED = 7
SHORT_FAULTS = tuple(
    module.FAULT
    for module in (killed_workers, broker_killed, postgres_killed, lost_commit, unavailable_engine)
)


@pytest.fixture(scope="module")
def rows(
    kafka_broker: Broker, postgres_server: EmbeddedPostgres
) -> Iterator[dict[str, FaultResult]]:
    suite = FaultSuite(FaultEnvironment(kafka_broker, postgres_server), SEED, minutes=1.0)
    results = suite.run_in_sequence() if IS_LONG else suite.run_on_one_fleet(SHORT_FAULTS)
    yield {row.fault: row for row in results}


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(
            fault,
            id=fault.name,
            marks=pytest.mark.long if IS_LONG or fault not in SHORT_FAULTS else (),
        )
        for fault in FAULTS
    ],
)
def test_fault_loses_and_duplicates_nothing(fault: Fault, rows: dict[str, FaultResult]) -> None:
    assert list(rows[fault.name].list_problems()) == []
