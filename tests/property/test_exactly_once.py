"""Crash anywhere, deliver again, any batch size, a moody engine: the tables are what one clean run would have made."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas.events import Content, DocumentReceived, DocumentWithdrawn
from streams.partition import Bounds
from tests.property.world import World

texts = st.sampled_from(["one line", "first\nsecond\nthird", "", "much\n" * 70, "poison in here", "locked", "same\nsame\nsame"])
steps = st.lists(st.tuples(st.sampled_from("abc"), st.one_of(st.none(), texts)), min_size=1, max_size=8)


async def world_after(folder: Path, script: list[tuple[str, str | None]], *, deaths: list[int], seed: int, bounds: Bounds, repeats: int) -> World:
    world = World(folder, deaths, seed, bounds, repeats)
    for number, (name, text) in enumerate(script):
        if text is None:
            await world.push(DocumentWithdrawn(external_id=name), f"e{number}")
        else:
            await world.push(DocumentReceived(external_id=name, content=Content(text=text)), f"e{number}")
    await world.run()
    return world


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    script=steps,
    deaths=st.lists(st.integers(1, 120), max_size=6, unique=True),
    seed=st.integers(0, 1000),
    claim=st.integers(1, 8),
    reactions=st.integers(1, 6),
    repeats=st.integers(1, 3),
)
async def test_a_troubled_run_ends_in_the_tables_of_a_clean_one(
    script: list[tuple[str, str | None]], deaths: list[int], seed: int, claim: int, reactions: int, repeats: int
) -> None:
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        clean = await world_after(Path(one), script, deaths=[], seed=0, bounds=Bounds(), repeats=1)
        troubled = await world_after(
            Path(two), script, deaths=deaths, seed=seed, bounds=Bounds(claim_records=claim, reactions=reactions, waiting=claim), repeats=repeats
        )
        assert troubled.tables() == clean.tables()
        for world in (clean, troubled):
            assert {event: len(kinds) for event, kinds in world.outcomes().items()} == {f"e{number}": 1 for number in range(len(script))}


async def test_an_engine_is_asked_once_for_each_text_however_often_events_come_again(tmp_path: Path) -> None:
    script: list[tuple[str, str | None]] = [("a", "first\nsecond\nthird"), ("a", "first\nsecond\nfourth")]
    world = await world_after(tmp_path, script, deaths=[], seed=3, bounds=Bounds(), repeats=1)
    world.memory.handled.clear()
    await world.run()
    assert world.embedder.asked == 4


async def test_a_poisoned_document_leaves_its_neighbours_alone(tmp_path: Path) -> None:
    world = await world_after(tmp_path, [("a", "fine"), ("b", "poison"), ("c", "also fine")], deaths=[], seed=1, bounds=Bounds(), repeats=1)
    assert len(world.tables()["texts"]) == 2
    assert world.tables()["buried"] == [("embed", "POISON")]
