from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from schemas.errors import EngineUnavailable, FatalError, LimitExceeded, NewerVersion, UnreadableDocument
from schemas.events import Content, DocumentIndexed, DocumentReceived, EventBuried
from schemas.events.outcomes import Outcome
from schemas.ids import document_id
from schemas.records import Position, Record, StoredRecord
from streams.codec import Codec
from streams.observe import Silent
from streams.partition import Bounds
from streams.publisher import Publisher
from streams.runner import Patience, Runner, Work
from streams.stage import Counted, Stage, Statement
from streams.submission import submission
from streams.waiting import WaitingRoom
from tests.property.world import EPOCH, GENERATION, World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, [], 0, Bounds())


def runner_of(world: World, react: Any, **stage: Any) -> Runner:
    data = {"name": "probe", "topic": "raw", "version": 1, "counts": "door", "react": react, "batch": 8} | stage
    publisher = Publisher("probe", GENERATION, world.codec, lambda: EPOCH)
    return Runner(Stage(**data), world.ledger, world.log, world.ports, publisher, world.codec, Silent(), patience=Patience(0, 0))  # type: ignore[arg-type]


async def records(world: World, *texts: str) -> list[StoredRecord]:
    for number, text in enumerate(texts):
        await world.push(DocumentReceived(external_id=text, content=Content(text=text)), f"e{number}")
    return world.log.topics["raw"]


async def handled(runner: Runner, given: list[StoredRecord]) -> list[Work]:
    works = await runner.claim(given)
    for work in await runner.react([work for work in works if work.counted]):
        await runner.react([work])
    await runner.finish(works)
    return works


async def test_one_bad_event_in_a_group_is_found_by_halving_and_the_rest_goes_through(world: World) -> None:
    async def react(counted: Sequence[Counted], ports: Any) -> list[Statement]:
        if any(item.fact.data.external_id == "bad" for item in counted):
            raise UnreadableDocument("it is bad", code="BAD")
        return []

    works = await handled(runner_of(world, react), await records(world, "a", "b", "bad", "c", "d"))
    assert [work.burial.event.code if work.burial else None for work in works] == [None, None, "BAD", None, None]


async def test_an_engine_that_is_away_is_waited_for_and_nothing_is_buried(world: World) -> None:
    absences = iter(range(50))

    async def react(counted: Sequence[Counted], ports: Any) -> list[Statement]:
        if next(absences, None) is not None:
            raise EngineUnavailable("away")
        return []

    works = await handled(runner_of(world, react), await records(world, "a"))
    assert works[0].burial is None
    assert works[0].attempts == 51


class Server:
    """It answers whoever is not cursed, one after the other, while it is not away."""

    def __init__(self) -> None:
        self.answers, self.is_away = 0, False

    async def ask(self, text: str | None) -> None:
        await asyncio.sleep(0)
        if self.is_away or text == "cursed":
            raise EngineUnavailable("500 for this one", answers=self.answers)
        self.answers += 1


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not true():
            await asyncio.sleep(0)


@pytest.fixture
def server() -> Server:
    return Server()


async def asking(world: World, server: Server, *texts: str) -> tuple[Runner, list[Work]]:
    """A stage that asks the server of everything but what begins with "known"."""

    async def react(counted: Sequence[Counted], ports: Any) -> list[Statement]:
        if not (counted[0].fact.data.external_id or "").startswith("known"):
            await server.ask(counted[0].fact.data.external_id)
        return []

    runner = runner_of(world, react)
    return runner, await runner.claim(await records(world, *texts))


async def test_an_event_that_an_engine_refuses_while_it_answers_others_is_buried(world: World, server: Server) -> None:
    runner, [cursed, *others] = await asking(world, server, "cursed", *"abcdefgh")
    stuck = asyncio.create_task(runner.react([cursed]))
    for work in others:
        tried = cursed.attempts
        await until(lambda tried=tried: stuck.done() or cursed.attempts > tried + 1)  # type: ignore[misc]
        await runner.react([work])
    await until(stuck.done)
    assert [work.burial.event.code for work in [cursed, *others] if work.burial] == ["ENGINE_UNAVAILABLE"]
    assert runner.awaited is None


async def test_reactions_that_need_no_engine_do_not_show_that_it_answers_others(world: World, server: Server) -> None:
    runner, [waiting, *known] = await asking(world, server, "a", *(f"known {number}" for number in range(40)))
    server.is_away = True
    stuck = asyncio.create_task(runner.react([waiting]))
    await until(lambda: runner.awaited is not None)
    for work in known:
        tried = waiting.attempts
        await until(lambda tried=tried: waiting.attempts > tried)  # type: ignore[misc]
        await runner.react([work])
        assert runner.awaited is not None
    server.is_away = False
    await until(stuck.done)
    assert waiting.burial is None and runner.awaited is None


async def test_who_waited_out_an_absence_is_not_buried_for_one_failure_after_it(world: World, server: Server) -> None:
    runner, [cursed, *others] = await asking(world, server, "cursed", *"abcdefgh")
    server.is_away = True
    stuck = asyncio.create_task(runner.react([cursed]))
    await until(lambda: cursed.attempts > 50)
    server.is_away = False
    for work in others:
        await runner.react([work])
    tried = cursed.attempts
    await until(lambda: cursed.attempts > tried + 10)
    assert not stuck.done()
    stuck.cancel()
    await asyncio.gather(stuck, return_exceptions=True)


async def test_a_bug_is_buried_with_its_traceback_and_twenty_in_a_row_stop_the_worker(world: World) -> None:
    async def react(counted: Sequence[Counted], ports: Any) -> list[Statement]:
        raise ZeroDivisionError

    runner = runner_of(world, react, batch=1)
    works = await runner.claim(await records(world, *(f"d{number}" for number in range(20))))
    for work in works[:19]:
        await runner.react([work])
    assert works[0].burial is not None
    assert "ZeroDivisionError" in (works[0].burial.event.traceback or "")
    with pytest.raises(FatalError, match="20 events in a row"):
        await runner.react([works[19]])


async def test_bad_input_never_stops_a_worker(world: World) -> None:
    async def react(counted: Sequence[Counted], ports: Any) -> list[Statement]:
        raise UnreadableDocument("locked", code="ENCRYPTED_DOCUMENT")

    works = await handled(runner_of(world, react, batch=1), await records(world, *(f"d{number}" for number in range(40))))
    assert all(work.burial is not None and work.burial.event.traceback is None for work in works)


async def test_a_reaction_over_its_deadline_is_tried_again_then_buried(world: World) -> None:
    async def react(counted: Sequence[Counted], ports: Any) -> list[Statement]:
        await asyncio.Event().wait()
        return []

    works = await handled(runner_of(world, react, deadline_s=0.001), await records(world, "a"))
    assert works[0].burial is not None
    assert works[0].burial.event.code == "DEADLINE_EXCEEDED"
    assert works[0].attempts == 2


async def test_of_a_group_that_is_late_each_is_tried_once_more_and_alone(world: World) -> None:
    groups = []

    async def react(counted: Sequence[Counted], ports: Any) -> list[Statement]:
        groups.append(len(counted))
        if any(item.fact.data.external_id == "slow" for item in counted):
            raise TimeoutError
        return []

    runner = runner_of(world, react)
    works = await runner.claim(await records(world, "a", "slow", "b"))
    assert await runner.react(works) == works
    await asyncio.gather(*(runner.react([work]) for work in works))
    assert [work.burial.event.code if work.burial else None for work in works] == [None, "DEADLINE_EXCEEDED", None]
    assert groups == [3, 1, 1, 1]


async def test_what_precedes_an_event_of_a_newer_version_is_claimed(world: World) -> None:
    await world.push(DocumentReceived(external_id="a", content=Content(text="a")), "a")
    await world.run()
    [old] = world.log.topics["accepted"]
    newer = replace(old, record=replace(old.record, headers={**old.record.headers, "ce_type": b"document.accepted.v9"}))
    runner = runner_of(world, None, topic="accepted", counts="always")
    assert [work.stored for work in await runner.claim([old, old, newer, old])] == [old, old]
    with pytest.raises(NewerVersion):
        await runner.claim([newer, old])


async def test_the_same_id_with_another_payload_is_buried_and_the_first_stands(world: World) -> None:
    async def react(counted: Sequence[Counted], ports: Any) -> list[Statement]:
        return []

    for text in ("one", "two"):
        world.log.keep(await submission(DocumentReceived(external_id="a", content=Content(text=text)), "same", source="shop", time=EPOCH, codec=world.codec))
    works = await handled(runner_of(world, react), world.log.topics["raw"])
    assert works[0].burial is None
    assert works[1].burial is not None
    assert works[1].burial.event.code == "DUPLICATE_ID"


async def test_an_event_whose_rows_the_tables_refuse_is_buried_alone(world: World) -> None:
    class Picky:
        generation = GENERATION

        async def claim(self, stage: str, counts: Any, events: Sequence[Any]) -> Any:
            if any(event.fact.data.external_id == "bad" for event in events):
                raise ValueError("out of range")
            return await world.memory.claim(stage, counts, events)

    async def react(counted: Sequence[Counted], ports: Any) -> list[Statement]:
        return []

    runner = runner_of(world, react)
    runner.ledger = Picky()  # type: ignore[assignment]
    works = await runner.claim(await records(world, "a", "bad", "b"))
    assert [work.burial.event.code if work.burial else None for work in works] == [None, "BUG", None]


async def test_documents_take_turns_in_the_waiting_room(world: World) -> None:
    async def react(counted: Sequence[Counted], ports: Any) -> list[Statement]:
        return []

    works = await runner_of(world, react).claim(await records(world, "a", "b", "c"))
    room = WaitingRoom(at_once=9)
    for work in [works[0]] * 5 + [works[1], works[2]]:
        room.add(work)
    taken = [room.take(1, 1)[0] for _ in range(7)]
    assert [work is works[0] for work in taken] == [True, False, False, True, True, True, True]


async def test_a_document_with_its_share_of_reactions_waits_for_one_of_them_to_end(world: World) -> None:
    async def react(counted: Sequence[Counted], ports: Any) -> list[Statement]:
        return []

    long, short = await runner_of(world, react).claim(await records(world, "a", "b"))
    room = WaitingRoom(at_once=2)
    for _ in range(4):
        room.add(long)
    assert room.take(9, 1_000_000) == [long, long]
    assert not room.ready
    room.add(short)
    room.add(long)
    assert room.take(9, 1_000_000) == [short]
    room.give_back([long])
    assert (room.take(9, 1_000_000), room.count) == ([long], 2)
    room.give_back([long, long, short])
    assert (room.take(9, 1_000_000), room.count, room.ready) == ([long, long], 0, False)


async def test_a_fact_that_is_too_large_buries_its_event_alone_and_its_neighbours_are_said_once(world: World) -> None:
    async def react(counted: Sequence[Counted], ports: Any) -> list[Statement]:
        return [Statement(item.fact, DocumentIndexed(detail=item.fact.data.external_id * (900_000 if item.fact.event_id == "e1" else 1))) for item in counted]

    works = await handled(runner_of(world, react), await records(world, "a", "b", "c"))
    assert [work.burial.event.code if work.burial else None for work in works] == [None, "EVENT_TOO_LARGE", None]
    said = [Outcome.model_validate_json(stored.record.value or b"") for stored in world.log.topics["outcomes"]]
    assert [(outcome.event_id, outcome.code, outcome.detail) for outcome in said if outcome.code is None] == [(None, None, "a"), (None, None, "c")]
    assert [(outcome.event_id, outcome.code) for outcome in said if outcome.code] == [("e1", "EVENT_TOO_LARGE")]


async def test_an_event_that_the_log_refuses_for_good_is_buried_alone(world: World) -> None:
    class Picky:
        async def append(self, given: Sequence[Record]) -> list[Position]:
            if any(b"bad" in (record.value or b"") and record.topic == "outcomes" and b"REFUSED" not in (record.value or b"") for record in given):
                raise LimitExceeded("the broker says no", code="REFUSED")
            return await world.log.append(given)

    async def react(counted: Sequence[Counted], ports: Any) -> list[Statement]:
        return [Statement(item.fact, DocumentIndexed(external_id=item.fact.data.external_id)) for item in counted]

    runner = runner_of(world, react)
    runner.log = Picky()  # type: ignore[assignment]
    works = await handled(runner, await records(world, "a", "bad", "c"))
    assert [work.burial.event.code if work.burial else None for work in works] == [None, "REFUSED", None]


async def test_a_record_that_trips_over_a_defect_of_the_reader_is_buried_with_its_traceback(world: World) -> None:
    class Broken(Codec):
        async def decode(self, stored: StoredRecord) -> Any:
            if b"bad" in (stored.record.value or b""):
                raise ZeroDivisionError("in the codec")
            return await super().decode(stored)

    async def react(counted: Sequence[Counted], ports: Any) -> list[Statement]:
        return []

    runner = runner_of(world, react)
    runner.codec = Broken()
    works = await handled(runner, await records(world, "a", "bad", "c"))
    assert [work.burial.event.code if work.burial else None for work in works] == [None, "BUG", None]


async def test_a_readable_event_that_fails_at_the_door_is_told_under_its_document(world: World) -> None:
    async def react(counted: Sequence[Counted], ports: Any) -> list[Statement]:
        raise UnreadableDocument("x" * 10_000, code="BAD")

    await handled(runner_of(world, react), await records(world, "a"))
    (told,) = world.log.topics["outcomes"]
    outcome = Outcome.model_validate_json(told.record.value or b"")
    assert outcome.document_id == document_id("default", "", "a")
    assert told.record.key == str(outcome.document_id).encode()
    assert outcome.detail is not None and len(outcome.detail) < 2_100


async def test_an_unreadable_record_is_told_under_the_id_that_it_is_buried_by(world: World) -> None:
    async def react(counted: Sequence[Counted], ports: Any) -> list[Statement]:
        return []

    world.log.keep(Record("raw", None, b"{", {}))
    await handled(runner_of(world, react), world.log.topics["raw"])
    (told,), (buried,) = world.log.topics["outcomes"], world.log.topics["dead_letters"]
    assert Outcome.model_validate_json(told.record.value or b"").document_id is None
    assert told.record.key == buried.record.key == str(EventBuried.model_validate_json(buried.record.value or b"").event_id).encode()


async def test_bugs_with_successes_between_them_do_not_stop_a_stage_that_only_projects(world: World) -> None:
    def project(fact: Any) -> Sequence[Any]:
        return [][0] if fact.data.external_id.startswith("bad") else []

    runner = runner_of(world, None, project=project)
    for record in await records(world, *(f"{kind}{number}" for number in range(30) for kind in ("bad", "good"))):
        await runner.finish([work for work in await runner.claim([record]) if work.burial])
    assert runner.bugs == 0


async def test_event_is_dead_lettered_after_three_lost_workers(world: World) -> None:
    begun: list[list[str]] = []
    ended: set[str] = set()

    async def react(counted: Sequence[Counted], ports: Any) -> list[Statement]:
        begun.append([item.fact.data.external_id for item in counted])
        if "deadly" in begun[-1]:
            await asyncio.Event().wait()
        ended.update(begun[-1])
        return []

    given = await records(world, "a", "deadly", "b")
    codes: dict[str | None, str | None] = {}
    for life in range(4):
        runner = runner_of(world, react)
        works = await runner.claim(given)
        await _until_killed(runner, [work for work in works if work.counted and not work.burial])
        if life < 3:
            assert "deadly" not in ended
            continue
        await runner.finish(works)
        codes = {work.counted.fact.data.external_id: work.burial.event.code if work.burial else None for work in works if work.counted}
    # Those that were in one worker with it are tried alone before it can take them along a third time.
    assert begun[:3] == [["a", "deadly", "b"], ["a", "deadly", "b"], ["a"]]
    assert sum("deadly" in group for group in begun) == 3
    assert codes == {"a": None, "deadly": "WORKER_LOST", "b": None}


async def _until_killed(runner: Runner, works: list[Work]) -> None:
    """React to these. What does not end is killed: nothing is released then."""
    task = asyncio.create_task(runner.react(works))
    done, _ = await asyncio.wait({task}, timeout=0.2)
    if not done:
        runner._end = _nothing  # type: ignore[method-assign]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _nothing(events: object) -> None:
    pass


@pytest.mark.parametrize(("in_order", "lost"), [(True, 0), (False, 2)])
async def test_cancelled_reactions_never_make_a_dead_letter(world: World, in_order: bool, lost: int) -> None:
    """In order, their partition is closed and takes back what the claims noted."""

    async def react(counted: Sequence[Counted], ports: Any) -> list[Statement]:
        await asyncio.Event().wait()
        return []

    given = await records(world, "a")
    for _ in range(5):
        runner = runner_of(world, react)
        works = await runner.claim(given)
        task = asyncio.create_task(runner.react(works))
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if in_order:
            await runner.release(works)
    assert works[0].lost == lost
    assert works[0].burial is None


async def test_failed_attempts_are_no_lost_workers(world: World) -> None:
    tries = 0

    async def react(counted: Sequence[Counted], ports: Any) -> list[Statement]:
        nonlocal tries
        tries += 1
        if tries < 5:
            raise EngineUnavailable("away")
        return []

    runner = runner_of(world, react)
    works = await runner.claim(await records(world, "a"))
    await runner.react(works)
    assert tries == 5
    assert [work.lost for work in await runner.claim(world.log.topics["raw"])] == [0]
