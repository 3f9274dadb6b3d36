"""Runs of ended processes, runs that the tables do not have yet, and feedback on runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast
from uuid import UUID

import pytest

from schemas.errors import DatabaseUnavailable, Forbidden, NotFound
from schemas.events import EventData, RunStopped
from schemas.judgements import FeedbackRequest
from schemas.principals import Principal
from schemas.run_records import OrphanedRun
from services.publishing import EventPublisher
from services.query import feedback, orphaned_runs, run_history
from services.query.feedback import FeedbackService
from services.query.orphaned_runs import OrphanedRunReporter, open_orphaned_run_reporter
from services.query.run_history import RecentRunLookup
from tests.support.api_client import LOCAL_CALLER, make_caller
from tests.support.eventually import eventually

OWN, OTHER, RUN = UUID(int=1), UUID(int=2), UUID(int=3)


@dataclass
class MemoryProcesses:
    """`ended` are the processes without a session; `open_runs` maps a run to its process."""

    open_runs: dict[UUID, UUID] = field(default_factory=lambda: {RUN: OTHER})
    ended: set[UUID] = field(default_factory=set)
    connected: list[asyncio.Event] = field(default_factory=list)
    n_checks: int = 0
    is_unavailable: bool = False
    fails_every_other_check: bool = False
    session_error: Exception | None = None

    @asynccontextmanager
    async def open_session(self, process_id: UUID) -> AsyncIterator[asyncio.Event]:
        assert process_id == OWN
        if self.session_error:
            raise self.session_error
        self._check_available()
        self.connected.append(asyncio.Event())
        yield self.connected[-1]

    async def find_ended(self) -> set[UUID]:
        self.n_checks += 1
        self._check_available()
        if self.fails_every_other_check and self.n_checks % 2:
            raise DatabaseUnavailable("away")
        return self.ended & set(self.open_runs.values())

    async def claim_runs(self, ended: Iterable[UUID], claimed_by: UUID) -> list[OrphanedRun]:
        claimed = [run for run, owner in self.open_runs.items() if owner in set(ended)]
        self.open_runs |= dict.fromkeys(claimed, claimed_by)
        return [OrphanedRun(run_id=run, tenant="acme", step="answer") for run in claimed]

    def _check_available(self) -> None:
        if self.is_unavailable:
            raise DatabaseUnavailable("away")

    async def wait_for_checks(self, count: int) -> None:
        target = self.n_checks + count
        await eventually(lambda: self.n_checks >= target)


@dataclass
class Processes:
    processes: MemoryProcesses = field(default_factory=MemoryProcesses)
    events: list[EventData] = field(default_factory=list)
    projected: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.projected.set()

    async def wait_until_projected(self) -> None:
        await self.projected.wait()

    @asynccontextmanager
    async def open_reporter(self) -> AsyncIterator[None]:
        reporter = OrphanedRunReporter(
            OWN,
            self.processes,
            self.wait_until_projected,
            self.events.append,
            lambda: datetime.now(UTC),
        )
        async with open_orphaned_run_reporter(reporter):
            yield


@pytest.fixture(autouse=True)
def short_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("CHECK_S", 0.01), ("RECONNECT_S", 0.01), ("GRACE_S", 0.1)):
        monkeypatch.setattr(orphaned_runs, name, seconds)


async def test_run_of_ended_process_is_reported_once() -> None:
    world = Processes()
    async with world.open_reporter():
        await world.processes.wait_for_checks(3)
        assert world.events == []
        world.processes.ended = {OTHER}
        await eventually(lambda: world.events)
        await world.processes.wait_for_checks(20)
    [stopped] = world.events
    assert isinstance(stopped, RunStopped)
    assert (stopped.run_id, stopped.tenant, stopped.step) == (RUN, "acme", "answer")
    assert (stopped.state, stopped.code) == ("interrupted", "INTERRUPTED")


async def test_process_that_reconnects_keeps_its_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orphaned_runs, "GRACE_S", 60.0)
    world = Processes()
    async with world.open_reporter():
        world.processes.ended = {OTHER}
        await world.processes.wait_for_checks(3)
        world.processes.ended = set()
        await world.processes.wait_for_checks(3)
        monkeypatch.setattr(orphaned_runs, "GRACE_S", 0.0)
        await world.processes.wait_for_checks(3)
    assert world.events == []


async def test_grace_starts_again_after_database_outage() -> None:
    world = Processes()
    world.processes.ended, world.processes.fails_every_other_check = {OTHER}, True
    async with world.open_reporter():
        await world.processes.wait_for_checks(40)
        assert world.events == []
        world.processes.fails_every_other_check = False
        await eventually(lambda: world.events)


async def test_run_answered_before_its_process_ended_is_not_reported() -> None:
    world = Processes()
    world.projected.clear()
    async with world.open_reporter():
        world.processes.ended = {OTHER}
        await asyncio.sleep(0.2)
        # The answer reaches the tables.
        world.processes.open_runs.clear()
        world.projected.set()
        await world.processes.wait_for_checks(3)
    assert world.events == []


async def test_lost_session_is_opened_again() -> None:
    world = Processes()
    async with world.open_reporter():
        world.processes.is_unavailable = True
        world.processes.connected[0].set()
        await world.processes.wait_for_checks(3)
        assert len(world.processes.connected) == 1
        world.processes.is_unavailable = False
        await eventually(lambda: len(world.processes.connected) == 2)


async def test_failed_first_session_stops_the_start() -> None:
    world = Processes()
    world.processes.session_error = ValueError("misuse")
    with pytest.raises(ValueError, match="misuse"):
        async with asyncio.timeout(30), world.open_reporter():
            pass


LATE = UUID(int=1)


class LateTable:
    """Has the run, then its answer, a moment after it was asked for."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any] | None] = [
            None,
            {"run_id": LATE, "answered_at": None},
            {"run_id": LATE, "answered_at": "2026-11-25"},
        ]

    async def get_run(self, caller: Principal, run_id: UUID) -> dict[str, Any] | None:
        return self.rows.pop(0) if len(self.rows) > 1 else self.rows[0]


async def test_lookup_waits_for_a_run_answered_by_this_process() -> None:
    lookup = RecentRunLookup(LateTable(), lambda tenant, run_id: run_id == LATE)
    async with asyncio.timeout(30):
        row = await lookup.get_run(LOCAL_CALLER, LATE)
    assert row["answered_at"] is not None


async def test_lookup_does_not_wait_for_unknown_or_hidden_runs(monkeypatch: Any) -> None:
    monkeypatch.setattr(run_history, "RUN_WAIT_S", 60.0)
    limited = make_caller(readers=("user:ana",))
    for caller, has_answered in ((LOCAL_CALLER, False), (limited, True)):
        lookup = RecentRunLookup(LateTable(), lambda *_, answer=has_answered: answer)
        async with asyncio.timeout(30):
            with pytest.raises(NotFound):
                await lookup.get_run(caller, LATE)


class UnusedLog:
    async def append(self, records: Any) -> Any:
        raise AssertionError("nothing is published")


@pytest.mark.parametrize(
    "caller",
    [
        Principal("key:reader", "default", "reader"),
        Principal("key:writer", "default", "writer"),
        Principal("jwt:ana", "default", "admin", ("user:ana",)),
    ],
)
async def test_rejection_by_reader_or_limited_caller_is_refused(caller: Principal) -> None:
    service = FeedbackService(
        EventPublisher(UnusedLog(), cast(Any, None)),
        cast(Any, None),
        lambda tenant, run: True,
        cast(Any, None),
    )
    with pytest.raises(Forbidden) as refused:
        await service.submit(caller, FeedbackRequest(run_id=UUID(int=2), candidate_rejected=True))
    assert refused.value.code == "FORBIDDEN_ROLE"


async def test_limited_caller_gives_no_feedback_on_a_run_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class NoRunOfTheCaller:
        async def fetch_question(self, caller: Principal, run_id: UUID) -> None:
            return None

    monkeypatch.setattr(feedback, "RUN_WAIT_S", 0.01)
    service = FeedbackService(
        EventPublisher(UnusedLog(), cast(Any, None)),
        cast(Any, NoRunOfTheCaller()),
        # Another caller's run, which this process has just answered.
        lambda tenant, run: True,
        cast(Any, None),
    )
    caller = Principal("jwt:ana", "default", "reader", ("user:ana",))
    with pytest.raises(NotFound):
        await service.submit(caller, FeedbackRequest(run_id=UUID(int=2), useful=True))
