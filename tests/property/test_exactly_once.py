"""Crashes, redeliveries, batch sizes and a flaky engine do not change the tables."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from schemas.events import Content, DocumentReceived, DocumentWithdrawn
from streams.partition_sink import PartitionLimits
from tests.support.repetitions import draw_examples
from tests.support.simulated_pipeline import SimulatedPipeline

texts = st.sampled_from(
    [
        "one line",
        "first\nsecond\nthird",
        "",
        "much\n" * 70,
        "poison in here",
        "locked",
        "same\nsame\nsame",
    ]
)
scripts = st.lists(
    st.tuples(st.sampled_from("abc"), st.one_of(st.none(), texts)), min_size=1, max_size=8
)


async def run_script(
    folder: Path,
    script: list[tuple[str, str | None]],
    *,
    deaths: list[int],
    seed: int,
    bounds: PartitionLimits,
    repeats: int,
) -> SimulatedPipeline:
    world = SimulatedPipeline(folder, deaths, seed, bounds, repeats)
    for number, (name, text) in enumerate(script):
        if text is None:
            await world.push(DocumentWithdrawn(external_id=name), f"e{number}")
        else:
            await world.push(
                DocumentReceived(external_id=name, content=Content(text=text)), f"e{number}"
            )
    await world.run()
    return world


@draw_examples(30)
@given(
    script=scripts,
    deaths=st.lists(st.integers(1, 120), max_size=6, unique=True),
    seed=st.integers(0, 1000),
    claim=st.integers(1, 8),
    reactions=st.integers(1, 6),
    repeats=st.integers(1, 3),
)
async def test_crashing_run_ends_with_same_state_as_clean_run(
    script: list[tuple[str, str | None]],
    deaths: list[int],
    seed: int,
    claim: int,
    reactions: int,
    repeats: int,
) -> None:
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        clean = await run_script(
            Path(one), script, deaths=[], seed=0, bounds=PartitionLimits(), repeats=1
        )
        troubled = await run_script(
            Path(two),
            script,
            deaths=deaths,
            seed=seed,
            bounds=PartitionLimits(
                claim_batch_records=claim, max_reactions=reactions, max_pending=claim
            ),
            repeats=repeats,
        )
        assert troubled.read_visible_state() == clean.read_visible_state()
        for world in (clean, troubled):
            assert {event: len(kinds) for event, kinds in world.list_outcomes().items()} == {
                f"e{number}": 1 for number in range(len(script))
            }


async def test_redelivered_events_do_not_call_engine_again(tmp_path: Path) -> None:
    script: list[tuple[str, str | None]] = [
        ("a", "first\nsecond\nthird"),
        ("a", "first\nsecond\nfourth"),
    ]
    world = await run_script(
        tmp_path, script, deaths=[], seed=3, bounds=PartitionLimits(), repeats=1
    )
    world.memory_ledger.inbox.clear()
    await world.run()
    assert world.embedder.n_embedded == 4


async def test_poison_document_does_not_affect_others(tmp_path: Path) -> None:
    world = await run_script(
        tmp_path,
        [("a", "fine"), ("b", "poison"), ("c", "also fine")],
        deaths=[],
        seed=1,
        bounds=PartitionLimits(),
        repeats=1,
    )
    assert len(world.read_visible_state()["texts"]) == 2
    assert world.read_visible_state()["dead_lettered"] == [("embed", "POISON")]
