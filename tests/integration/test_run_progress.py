"""Progress of runs in the tables: in any order, for the tenant and the principal alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import permutations
from typing import Any
from uuid import UUID

from processors.runs import project
from schemas.events import Event, EventData, QueryAnswered, RunProgressed, RunStarted, RunStopped
from schemas.run_records import OrphanedRun
from sql.catalog.listings import PgListings
from sql.catalog.runs import PgRunProcesses
from sql.inbox.shared_rows import write_shared_rows
from tests.support.api_client import make_caller
from tests.support.eventually import eventually
from tests.support.search_stack import SearchStack

NOW = datetime.now(UTC)
ANA = make_caller(name="jwt:ana", readers=("user:ana",))
BEN = make_caller(name="jwt:ben", readers=("user:ben",))


def make_events(
    run: UUID, deadline: datetime, *, process_id: UUID | None = None
) -> list[EventData]:
    tenant = ANA.tenant
    return [
        RunStarted(
            run_id=run,
            tenant=tenant,
            started_at=NOW,
            deadline=deadline,
            requested_by=ANA.id,
            process_id=process_id,
        ),
        *(
            RunProgressed(
                run_id=run, tenant=tenant, number=number, step="fuse", occurred_at=NOW, ms=ms
            )
            for number, ms in ((1, None), (2, 1.5))
        ),
    ]


def make_stop(run: UUID) -> RunStopped:
    return RunStopped(
        run_id=run,
        tenant=ANA.tenant,
        stopped_at=NOW,
        state="cancelled",
        step="fuse",
        code="CANCELLED",
        detail="The run was cancelled.",
        remedy="Start the run again.",
    )


def make_answer(run: UUID) -> QueryAnswered:
    return QueryAnswered(
        run_id=run, tenant=ANA.tenant, generation="g1", answered_at=NOW, response={"answer": "a"}
    )


async def write(stack: SearchStack, *events: EventData) -> None:
    for event in events:
        envelope: Any = Event(UUID(int=1), event, "anabranch/api", "1", NOW, ANA.tenant, None)
        await write_shared_rows(stack.connection, project(envelope))


async def test_progress_is_equal_for_any_order_of_events(stack: SearchStack) -> None:
    listings, rows = PgListings(stack.pool), []
    events = [*make_events(UUID(int=1), NOW + timedelta(days=1)), make_stop(UUID(int=1))]
    for number, order in enumerate(permutations(events), 1):
        run = UUID(int=number)
        # Twice: a redelivery changes nothing.
        await write(stack, *(e.model_copy(update={"run_id": run}) for e in [*order, *order]))
        row = await listings.fetch_progress(ANA, run)
        assert row is not None and row.pop("run_id") == run
        rows.append(row)
    assert all(row == rows[0] for row in rows)
    assert rows[0]["state"] == "cancelled"
    assert [rows[0]["steps"][number]["ms"] for number in ("1", "2")] == [None, 1.5]


async def test_run_past_its_deadline_is_interrupted(stack: SearchStack) -> None:
    listings = PgListings(stack.pool)
    await write(stack, *make_events(UUID(int=1), NOW + timedelta(days=1)))
    await write(stack, *make_events(UUID(int=2), NOW - timedelta(seconds=1)))
    states = [(await listings.fetch_progress(ANA, UUID(int=n)) or {}).get("state") for n in (1, 2)]
    assert states == ["running", "interrupted"]
    assert {row["state"] for row in (await listings.list_runs(ANA, after=None, limit=9))[0]} == {
        "running",
        "interrupted",
    }


async def test_answer_wins_over_a_late_cancellation(stack: SearchStack) -> None:
    run, listings = UUID(int=1), PgListings(stack.pool)
    await write(stack, *make_events(run, NOW), make_stop(run), make_answer(run))
    row = await listings.fetch_progress(ANA, run)
    assert row is not None and row["state"] == "completed"
    assert row["response"] == {"answer": "a"}


async def test_run_is_hidden_from_other_tenants_and_principals(stack: SearchStack) -> None:
    run, listings = UUID(int=1), PgListings(stack.pool)
    await write(stack, *make_events(run, NOW + timedelta(days=1)), make_stop(run))
    stranger = make_caller(name=ANA.id, tenant="bolt")
    for caller in (BEN, stranger):
        assert await listings.fetch_progress(caller, run) is None
        assert await listings.get_run(caller, run) is None
        assert await listings.list_runs(caller, after=None, limit=5) == ([], None)
    assert await listings.fetch_progress(make_caller(name="key:all"), run) is not None
    answered, unknown = UUID(int=2), UUID(int=3)
    await write(stack, *make_events(answered, NOW), make_answer(answered))
    ended = await listings.find_ended([run, answered, unknown])
    assert ended == {run: True, answered: False}


async def test_only_open_runs_of_ended_processes_are_claimed_once(
    stack: SearchStack, database: str
) -> None:
    ended, alive, claimer, rival = (UUID(int=n) for n in (91, 92, 93, 94))
    tomorrow = NOW + timedelta(days=1)
    processes = PgRunProcesses(stack.pool, database)
    await write(stack, *make_events(UUID(int=1), tomorrow, process_id=ended))
    # Stopped by its process; of a process that lives; of an earlier version.
    await write(stack, *make_events(UUID(int=2), tomorrow, process_id=ended))
    await write(stack, make_stop(UUID(int=2)))
    await write(stack, *make_events(UUID(int=3), tomorrow, process_id=alive))
    await write(stack, *make_events(UUID(int=4), tomorrow))
    async with processes.open_session(alive):
        assert await processes.find_ended() == {ended}
        async with processes.open_session(claimer):
            assert await processes.claim_runs([ended, alive], claimer) == [
                OrphanedRun(run_id=UUID(int=1), tenant=ANA.tenant, step="fuse")
            ]
            assert await processes.claim_runs([ended, alive], rival) == []
            assert await processes.find_ended() == set()
        # Killed before it reported the run. Postgres releases its lock a moment later.
        await eventually(processes.find_ended, {claimer}.__eq__)
        # A redelivered start does not undo the claim.
        await write(stack, *make_events(UUID(int=1), tomorrow, process_id=ended))
        assert await processes.find_ended() == {claimer}
    await eventually(processes.find_ended, {claimer, alive}.__eq__)
