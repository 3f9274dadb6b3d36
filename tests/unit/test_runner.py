from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from schemas.errors import (
    EngineUnavailable,
    FatalError,
    LimitExceeded,
    NewerVersion,
    TransientError,
    UnreadableDocument,
)
from schemas.events import Content, DocumentIndexed, DocumentReceived, EventDeadLettered
from schemas.events.outcomes import DocumentOutcome
from schemas.ids import make_document_id
from schemas.topics import Position, Record, StoredRecord
from streams.codec import Codec
from streams.partition_sink import FairQueue, PartitionLimits
from streams.publisher import Publisher, build_raw_record
from streams.retry import AttemptLimits, Backoff
from streams.runner import StageRunner, WorkItem
from streams.stage import Emission, Instrumentation, PendingEvent, Stage
from tests.support.simulated_pipeline import EPOCH, GENERATION, SimulatedPipeline


@pytest.fixture
def world(tmp_path: Path) -> SimulatedPipeline:
    return SimulatedPipeline(tmp_path, [], 0, PartitionLimits())


def make_runner(world: SimulatedPipeline, react: Any, **stage: Any) -> StageRunner:
    data = {
        "name": "probe",
        "topic": "raw",
        "version": 1,
        "ordering_policy": "once_per_id",
        "react": react,
        "batch_size": 8,
    } | stage
    publisher = Publisher("probe", GENERATION, world.codec, lambda: EPOCH)
    return StageRunner(
        Stage(**data),
        world.ledger,
        world.log,
        world.ports,
        publisher,
        world.codec,
        Instrumentation(),
        backoff=Backoff(0, 0),
    )  # type: ignore[arg-type]


async def append_records(world: SimulatedPipeline, *texts: str) -> list[StoredRecord]:
    for number, text in enumerate(texts):
        await world.push(
            DocumentReceived(external_id=text, content=Content(text=text)), f"e{number}"
        )
    return world.log.topics["raw"]


async def process_records(runner: StageRunner, records: list[StoredRecord]) -> list[WorkItem]:
    works = await runner.claim(records)
    for work in await runner.react([work for work in works if work.pending_event]):
        await runner.react([work])
    await runner.finish(works)
    return works


async def react_to_nothing(pending: Sequence[PendingEvent], ports: Any) -> list[Emission]:
    return []


def list_codes(works: Sequence[WorkItem]) -> list[str | None]:
    return [work.dead_letter.data.code if work.dead_letter else None for work in works]


async def test_bad_event_in_a_batch_is_isolated_by_bisection(world: SimulatedPipeline) -> None:
    async def react(pending_events: Sequence[PendingEvent], ports: Any) -> list[Emission]:
        if any(item.event.data.external_id == "bad" for item in pending_events):
            raise UnreadableDocument("it is bad", code="BAD")
        return []

    works = await process_records(
        make_runner(world, react), await append_records(world, "a", "b", "bad", "c", "d")
    )
    assert list_codes(works) == [None, None, "BAD", None, None]


async def test_engine_outage_is_retried_without_dead_letter(world: SimulatedPipeline) -> None:
    absences = iter(range(50))

    async def react(pending_events: Sequence[PendingEvent], ports: Any) -> list[Emission]:
        if next(absences, None) is not None:
            raise EngineUnavailable("away")
        return []

    works = await process_records(make_runner(world, react), await append_records(world, "a"))
    assert works[0].dead_letter is None
    assert works[0].attempts == 51


@pytest.mark.parametrize("limit", [1, 3])
async def test_failing_event_is_dead_lettered_after_its_attempts(
    world: SimulatedPipeline, limit: int
) -> None:
    async def react(pending_events: Sequence[PendingEvent], ports: Any) -> list[Emission]:
        raise TransientError("not yet")

    runner = make_runner(world, react)
    runner.limits = AttemptLimits(failed=limit)
    works = await process_records(runner, await append_records(world, "a"))
    assert works[0].dead_letter is not None and works[0].attempts == limit


class FlakyEngine:
    """Refuses the text "cursed"; answers other texts, unless it is unavailable."""

    def __init__(self) -> None:
        self.answers, self.is_unavailable = 0, False

    async def ask(self, text: str | None) -> None:
        await asyncio.sleep(0)
        if self.is_unavailable or text == "cursed":
            raise EngineUnavailable("500 for this one", n_answers=self.answers)
        self.answers += 1


async def wait_until(is_met: Callable[[], bool]) -> None:
    """Check at every step of the event loop: retries have no delay here, and attempts count."""
    async with asyncio.timeout(60):
        while not is_met():
            await asyncio.sleep(0)


@pytest.fixture
def server() -> FlakyEngine:
    return FlakyEngine()


async def claim_for_engine(
    world: SimulatedPipeline, server: FlakyEngine, *texts: str
) -> tuple[StageRunner, list[WorkItem]]:
    """Claim events of a stage that calls the server unless the text starts with "known"."""

    async def react(pending_events: Sequence[PendingEvent], ports: Any) -> list[Emission]:
        if not (pending_events[0].event.data.external_id or "").startswith("known"):
            await server.ask(pending_events[0].event.data.external_id)
        return []

    runner = make_runner(world, react)
    return runner, await runner.claim(await append_records(world, *texts))


async def test_event_refused_while_engine_answers_others_is_dead_lettered(
    world: SimulatedPipeline, server: FlakyEngine
) -> None:
    runner, [refused, *others] = await claim_for_engine(world, server, "cursed", *"abcdefgh")
    stuck = asyncio.create_task(runner.react([refused]))
    for work in others:
        n_attempts = refused.attempts
        await wait_until(
            lambda n_attempts=n_attempts: stuck.done() or refused.attempts > n_attempts + 1
        )  # type: ignore[misc]
        await runner.react([work])
    await wait_until(stuck.done)
    assert list_codes([refused, *others]) == ["ENGINE_UNAVAILABLE", *[None] * 8]
    assert runner.engine_outage is None


async def test_reactions_without_engine_do_not_prove_it_available(
    world: SimulatedPipeline, server: FlakyEngine
) -> None:
    runner, [waiting, *without_engine] = await claim_for_engine(
        world, server, "a", *(f"known {number}" for number in range(40))
    )
    server.is_unavailable = True
    stuck = asyncio.create_task(runner.react([waiting]))
    await wait_until(lambda: runner.engine_outage is not None)
    for work in without_engine:
        n_attempts = waiting.attempts
        await wait_until(lambda n_attempts=n_attempts: waiting.attempts > n_attempts)  # type: ignore[misc]
        await runner.react([work])
        assert runner.engine_outage is not None
    server.is_unavailable = False
    await wait_until(stuck.done)
    assert waiting.dead_letter is None and runner.engine_outage is None


async def test_single_failure_after_outage_does_not_exhaust_retries(
    world: SimulatedPipeline, server: FlakyEngine
) -> None:
    runner, [refused, *others] = await claim_for_engine(world, server, "cursed", *"abcdefgh")
    server.is_unavailable = True
    stuck = asyncio.create_task(runner.react([refused]))
    await wait_until(lambda: refused.attempts > 50)
    server.is_unavailable = False
    for work in others:
        await runner.react([work])
    n_attempts = refused.attempts
    await wait_until(lambda: refused.attempts > n_attempts + 10)
    assert not stuck.done()
    stuck.cancel()
    await asyncio.gather(stuck, return_exceptions=True)


async def test_twenty_consecutive_bugs_stop_the_worker(world: SimulatedPipeline) -> None:
    async def react(pending_events: Sequence[PendingEvent], ports: Any) -> list[Emission]:
        raise ZeroDivisionError

    runner = make_runner(world, react, batch_size=1)
    works = await runner.claim(await append_records(world, *(f"d{number}" for number in range(20))))
    for work in works[:19]:
        await runner.react([work])
    assert works[0].dead_letter is not None
    assert "ZeroDivisionError" in (works[0].dead_letter.data.traceback or "")
    with pytest.raises(FatalError, match="20 consecutive events"):
        await runner.react([works[19]])


async def test_bad_input_never_stops_the_worker(world: SimulatedPipeline) -> None:
    async def react(pending_events: Sequence[PendingEvent], ports: Any) -> list[Emission]:
        raise UnreadableDocument("locked", code="ENCRYPTED_DOCUMENT")

    works = await process_records(
        make_runner(world, react, batch_size=1),
        await append_records(world, *(f"d{number}" for number in range(40))),
    )
    assert all(
        work.dead_letter is not None and work.dead_letter.data.traceback is None for work in works
    )


async def test_deadline_exceeded_is_retried_then_dead_lettered(world: SimulatedPipeline) -> None:
    async def react(pending_events: Sequence[PendingEvent], ports: Any) -> list[Emission]:
        await asyncio.Event().wait()
        return []

    works = await process_records(
        make_runner(world, react, deadline_s=0.001), await append_records(world, "a")
    )
    assert works[0].dead_letter is not None
    assert works[0].dead_letter.data.code == "DEADLINE_EXCEEDED"
    assert works[0].attempts == 2


async def test_events_of_timed_out_batch_are_retried_individually(world: SimulatedPipeline) -> None:
    groups = []

    async def react(pending_events: Sequence[PendingEvent], ports: Any) -> list[Emission]:
        groups.append(len(pending_events))
        if any(item.event.data.external_id == "slow" for item in pending_events):
            raise TimeoutError
        return []

    runner = make_runner(world, react)
    works = await runner.claim(await append_records(world, "a", "slow", "b"))
    assert await runner.react(works) == works
    await asyncio.gather(*(runner.react([work]) for work in works))
    assert list_codes(works) == [None, "DEADLINE_EXCEEDED", None]
    assert groups == [3, 1, 1, 1]


async def test_events_before_newer_version_are_claimed(world: SimulatedPipeline) -> None:
    await world.push(DocumentReceived(external_id="a", content=Content(text="a")), "a")
    await world.run()
    [old] = world.log.topics["accepted"]
    newer = replace(
        old,
        record=replace(
            old.record, headers={**old.record.headers, "ce_type": b"document.accepted.v9"}
        ),
    )
    runner = make_runner(world, None, topic="accepted", ordering_policy="always")
    assert [work.stored_record for work in await runner.claim([old, old, newer, old])] == [old, old]
    with pytest.raises(NewerVersion):
        await runner.claim([newer, old])


async def test_same_id_with_different_payload_is_dead_lettered(world: SimulatedPipeline) -> None:
    for text in ("one", "two"):
        world.log.store(
            await build_raw_record(
                DocumentReceived(external_id="a", content=Content(text=text)),
                "same",
                source="shop",
                time=EPOCH,
                codec=world.codec,
            )
        )
    works = await process_records(make_runner(world, react_to_nothing), world.log.topics["raw"])
    assert works[0].dead_letter is None
    assert works[1].dead_letter is not None
    assert works[1].dead_letter.data.code == "DUPLICATE_ID"


async def test_event_rejected_by_database_is_dead_lettered_alone(world: SimulatedPipeline) -> None:
    class Picky:
        generation = GENERATION

        async def claim(self, stage: str, counts: Any, events: Sequence[Any]) -> Any:
            if any(event.event.data.external_id == "bad" for event in events):
                raise ValueError("out of range")
            return await world.memory_ledger.claim(stage, counts, events)

    runner = make_runner(world, react_to_nothing)
    runner.ledger = Picky()  # type: ignore[assignment]
    works = await runner.claim(await append_records(world, "a", "bad", "b"))
    assert list_codes(works) == [None, "BUG", None]


async def test_fair_queue_round_robins_documents(world: SimulatedPipeline) -> None:
    works = await make_runner(world, react_to_nothing).claim(
        await append_records(world, "a", "b", "c")
    )
    fair_queue = FairQueue(max_in_flight=9, key=id)
    for work in [works[0]] * 5 + [works[1], works[2]]:
        fair_queue.add(work)
    taken = [fair_queue.take(1, 1)[0] for _ in range(7)]
    assert [work is works[0] for work in taken] == [True, False, False, True, True, True, True]


async def test_fair_queue_limits_concurrent_reactions_per_document(
    world: SimulatedPipeline,
) -> None:
    long, short = await make_runner(world, react_to_nothing).claim(
        await append_records(world, "a", "b")
    )
    fair_queue = FairQueue(max_in_flight=2, key=id)
    for _ in range(4):
        fair_queue.add(long)
    assert fair_queue.take(9, 1_000_000) == [long, long]
    assert not fair_queue.has_ready_items
    fair_queue.add(short)
    fair_queue.add(long)
    assert fair_queue.take(9, 1_000_000) == [short]
    fair_queue.release([long])
    assert (fair_queue.take(9, 1_000_000), fair_queue.count) == ([long], 2)
    fair_queue.release([long, long, short])
    assert (fair_queue.take(9, 1_000_000), fair_queue.count, fair_queue.has_ready_items) == (
        [long, long],
        0,
        False,
    )


async def test_oversized_event_is_dead_lettered_and_neighbors_publish_once(
    world: SimulatedPipeline,
) -> None:
    async def react(pending_events: Sequence[PendingEvent], ports: Any) -> list[Emission]:
        return [
            Emission(
                item.event,
                DocumentIndexed(
                    detail=item.event.data.external_id
                    * (900_000 if item.event.event_id == "e1" else 1)
                ),
            )
            for item in pending_events
        ]

    works = await process_records(
        make_runner(world, react), await append_records(world, "a", "b", "c")
    )
    assert list_codes(works) == [None, "EVENT_TOO_LARGE", None]
    outcomes = [
        DocumentOutcome.model_validate_json(stored.record.value or b"")
        for stored in world.log.topics["outcomes"]
    ]
    assert [
        (outcome.event_id, outcome.code, outcome.detail)
        for outcome in outcomes
        if outcome.code is None
    ] == [(None, None, "a"), (None, None, "c")]
    assert [(outcome.event_id, outcome.code) for outcome in outcomes if outcome.code] == [
        ("e1", "EVENT_TOO_LARGE")
    ]


async def test_event_rejected_by_log_is_dead_lettered_alone(world: SimulatedPipeline) -> None:
    class Picky:
        async def append(self, records: Sequence[Record]) -> list[Position]:
            if any(
                b"bad" in (record.value or b"")
                and record.topic == "outcomes"
                and b"REFUSED" not in (record.value or b"")
                for record in records
            ):
                raise LimitExceeded("the broker says no", code="REFUSED")
            return await world.log.append(records)

    async def react(pending_events: Sequence[PendingEvent], ports: Any) -> list[Emission]:
        return [
            Emission(item.event, DocumentIndexed(external_id=item.event.data.external_id))
            for item in pending_events
        ]

    runner = make_runner(world, react)
    runner.event_log = Picky()  # type: ignore[assignment]
    works = await process_records(runner, await append_records(world, "a", "bad", "c"))
    assert list_codes(works) == [None, "REFUSED", None]


async def test_decoder_bug_dead_letters_the_record_with_traceback(world: SimulatedPipeline) -> None:
    class Broken(Codec):
        async def decode(self, stored: StoredRecord) -> Any:
            if b"bad" in (stored.record.value or b""):
                raise ZeroDivisionError("in the codec")
            return await super().decode(stored)

    runner = make_runner(world, react_to_nothing)
    runner.codec = Broken()
    works = await process_records(runner, await append_records(world, "a", "bad", "c"))
    assert list_codes(works) == [None, "BUG", None]


async def test_failed_ingress_event_outcome_is_keyed_by_document(world: SimulatedPipeline) -> None:
    async def react(pending_events: Sequence[PendingEvent], ports: Any) -> list[Emission]:
        raise UnreadableDocument("x" * 10_000, code="BAD")

    await process_records(make_runner(world, react), await append_records(world, "a"))
    (stored,) = world.log.topics["outcomes"]
    outcome = DocumentOutcome.model_validate_json(stored.record.value or b"")
    assert outcome.document_id == make_document_id("default", "", "a")
    assert stored.record.key == str(outcome.document_id).encode()
    assert outcome.detail is not None and len(outcome.detail) < 2_100


async def test_undecodable_record_outcome_is_keyed_by_event_id(world: SimulatedPipeline) -> None:
    world.log.store(Record("raw", None, b"{", {}))
    await process_records(make_runner(world, react_to_nothing), world.log.topics["raw"])
    (stored,), (dead_letter,) = world.log.topics["outcomes"], world.log.topics["dead_letters"]
    assert DocumentOutcome.model_validate_json(stored.record.value or b"").document_id is None
    assert (
        stored.record.key
        == dead_letter.record.key
        == str(
            EventDeadLettered.model_validate_json(dead_letter.record.value or b"").event_id
        ).encode()
    )


async def test_intermittent_bugs_do_not_stop_projecting_stage(world: SimulatedPipeline) -> None:
    def project(recorded_event: Any) -> Sequence[Any]:
        return [][0] if recorded_event.data.external_id.startswith("bad") else []

    runner = make_runner(world, None, project=project)
    for record in await append_records(
        world, *(f"{kind}{number}" for number in range(30) for kind in ("bad", "good"))
    ):
        await runner.finish([work for work in await runner.claim([record]) if work.dead_letter])
    assert runner.consecutive_bugs == 0


async def test_event_is_dead_lettered_after_three_lost_workers(world: SimulatedPipeline) -> None:
    begun: list[list[str]] = []
    ended: set[str] = set()

    async def react(pending_events: Sequence[PendingEvent], ports: Any) -> list[Emission]:
        begun.append([item.event.data.external_id for item in pending_events])
        if "deadly" in begun[-1]:
            await asyncio.Event().wait()
        ended.update(begun[-1])
        return []

    records = await append_records(world, "a", "deadly", "b")
    codes: dict[str | None, str | None] = {}
    for life in range(4):
        runner = make_runner(world, react)
        works = await runner.claim(records)
        await _react_until_killed(
            runner, [work for work in works if work.pending_event and not work.dead_letter]
        )
        if life < 3:
            assert "deadly" not in ended
            continue
        await runner.finish(works)
        codes = {
            work.pending_event.event.data.external_id: work.dead_letter.data.code
            if work.dead_letter
            else None
            for work in works
            if work.pending_event
        }
    # Those that were in one worker with it are tried alone before it can take them along a third
    # time.
    assert begun[:3] == [["a", "deadly", "b"], ["a", "deadly", "b"], ["a"]]
    assert sum("deadly" in group for group in begun) == 3
    assert codes == {"a": None, "deadly": "WORKER_LOST", "b": None}


async def _react_until_killed(runner: StageRunner, works: list[WorkItem]) -> None:
    """React to `works`; kill a reaction that does not end, so that nothing is released."""
    task = asyncio.create_task(runner.react(works))
    done, _ = await asyncio.wait({task}, timeout=0.2)
    if not done:
        runner._open_attempts.withdraw = _ignore_end  # type: ignore[method-assign]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _ignore_end(events: object) -> None:
    pass


@pytest.mark.parametrize(("in_order", "lost"), [(True, 0), (False, 2)])
async def test_cancelled_reaction_is_never_dead_lettered(
    world: SimulatedPipeline, in_order: bool, lost: int
) -> None:
    """An orderly close releases the claims and takes back their attempts."""

    async def react(pending_events: Sequence[PendingEvent], ports: Any) -> list[Emission]:
        await asyncio.Event().wait()
        return []

    records = await append_records(world, "a")
    for _ in range(5):
        runner = make_runner(world, react)
        works = await runner.claim(records)
        task = asyncio.create_task(runner.react(works))
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if in_order:
            await runner.release(works)
    assert works[0].abandoned_attempts == lost
    assert works[0].dead_letter is None


async def test_failed_attempts_do_not_count_as_lost_workers(world: SimulatedPipeline) -> None:
    tries = 0

    async def react(pending_events: Sequence[PendingEvent], ports: Any) -> list[Emission]:
        nonlocal tries
        tries += 1
        if tries < 5:
            raise EngineUnavailable("away")
        return []

    runner = make_runner(world, react)
    works = await runner.claim(await append_records(world, "a"))
    await runner.react(works)
    assert tries == 5
    assert [work.abandoned_attempts for work in await runner.claim(world.log.topics["raw"])] == [0]
