from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from schemas.errors import EngineUnavailable, FatalError, UnreadableDocument
from schemas.events import Content, DocumentReceived
from schemas.records import StoredRecord
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
    await runner.react([work for work in works if work.counted])
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


async def test_an_event_that_an_engine_refuses_while_it_answers_others_is_buried(world: World) -> None:
    async def react(counted: Sequence[Counted], ports: Any) -> list[Statement]:
        if counted[0].fact.data.external_id == "cursed":
            await asyncio.sleep(0)
            raise EngineUnavailable("500 for this one")
        return []

    runner = runner_of(world, react)
    works = await runner.claim(await records(world, "cursed", *"abcdefgh"))
    await asyncio.gather(*(runner.react([work]) for work in works))
    assert [work.burial.event.code for work in works if work.burial] == ["ENGINE_UNAVAILABLE"]


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
    assert works[0].attempts == 5


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
