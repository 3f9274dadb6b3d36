"""The minute's version of `python -m tests.faults`: every fault strikes, and nothing comes of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sql.embedded import EmbeddedPostgres
from streams.kafka.broker import Broker
from tests.faults.ground import Ground
from tests.faults.run import FAULTS, Run
from tests.faults.trial import Fault
from tests.faults.verdict import Row

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(900)]
SEED = 7


@pytest.fixture(scope="module")
def rows(kafka_broker: Broker, postgres_server: EmbeddedPostgres) -> Iterator[dict[str, Row]]:
    """All faults at once: each would have to wait for the others otherwise."""
    yield {row.fault: row for row in Run(Ground(kafka_broker, postgres_server), SEED, minutes=1.0).all()}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_nothing_is_lost_or_doubled_and_the_views_are_a_clean_runs(fault: Fault, rows: dict[str, Row]) -> None:
    assert list(rows[fault.name].problems()) == []
