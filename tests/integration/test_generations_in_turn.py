"""One generation after the other, and several at once: each goes on when those it was made beside are gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.desk.dropping import drop_generation
from anabranch.generation_settings import sets_of
from schemas.errors import InvalidRequest, PermanentError
from sql.checksum import checksum
from sql.residue import residue
from sql.switching import roll_back, switch
from tests.integration.test_reindex import CHANGES, OVERRIDES, TEXTS, WORDS, reindexing
from tests.pipeline import Pipeline, pipeline


async def shown(at_work: Pipeline, generation: str) -> set[str]:
    rows = await at_work.pool.fetch("select external_id from visible v join documents d on d.id = v.document_id where generation = $1", generation)
    return {row["external_id"] for row in rows}


async def promote(at_work: Pipeline, name: str) -> None:
    assert (await switch(at_work.pool, name, at_work.worker.builder.decisions.promoted)).moved


async def drop(at_work: Pipeline, name: str) -> None:
    await drop_generation(at_work.pool, at_work.worker.storage.log, at_work.worker.builder.decisions, name)


async def test_a_build_goes_on_when_what_it_was_begun_beside_is_replaced_and_dropped(database: str, tmp_path: Path) -> None:
    async with pipeline(tmp_path, database, OVERRIDES) as at_work:
        await at_work.fill(TEXTS)
        desk = reindexing(at_work)
        slow, _ = await desk.start(CHANGES["embedder"][0], events_per_second=0.01)
        rebuilt = await desk.rebuild(keep=False)
        await at_work.reaches(rebuilt, "live")
        await at_work.push({"doc-0": f"Changed.\n{WORDS}", "doc-1": None, "late": f"Late.\n{WORDS}"})
        await desk.pace(slow, {"events_per_second": None})
        await at_work.reaches(slow, "shadow")
        await at_work.quiet()
        assert await shown(at_work, slow) == await shown(at_work, rebuilt) == set(TEXTS) - {"doc-1"} | {"late"}
        await promote(at_work, slow)
        await drop(at_work, rebuilt)
        await at_work.fill({"later": f"Later.\n{WORDS}", "doc-2": None})
        assert await shown(at_work, slow) == set(TEXTS) - {"doc-1", "doc-2"} | {"late", "later"}


async def test_a_change_on_a_change_outlives_both_that_it_was_made_from(database: str, tmp_path: Path) -> None:
    """Another chunker is promoted, then another embedder for its chunks; whoever states the facts of `chunked.g2` is dropped, and another goes on."""
    async with pipeline(tmp_path, database, OVERRIDES) as at_work:
        await at_work.fill(TEXTS)
        chunker, embedder = CHANGES["chunker"], CHANGES["embedder"]
        second, _ = await reindexing(at_work).start(chunker[0])
        await at_work.reaches(second, "shadow")
        await promote(at_work, second)
        third, plan = await reindexing(at_work).start(embedder[0])
        assert (plan.stages, plan.topic) == (["embed"], f"chunked.{second}")
        build = await at_work.reaches(third, "shadow")
        assert dict(build.engine_calls) == plan.body()["engine_calls"]
        await promote(at_work, third)
        for name in ("g1", second):
            await drop(at_work, name)
        await at_work.fill({"doc-0": f"Changed.\n{WORDS}", "doc-1": None, "late": f"Late.\n{WORDS}"})
        assert await shown(at_work, third) == set(TEXTS) - {"doc-1"} | {"late"}
        before = await checksum(at_work.pool)
        last = await reindexing(at_work).rebuild(keep=False)
        build = await at_work.reaches(last, "live")
        assert not build.engine_calls and await checksum(at_work.pool) == before
        assert sets_of(reindexing(at_work).settings, last) == [*chunker[0], *embedder[0]], "it is made with what the others were made with"
        with pytest.raises(InvalidRequest) as same:
            await reindexing(at_work).plan([])
        assert same.value.code == "NOTHING_CHANGES"


async def test_a_build_goes_on_when_the_generation_that_states_its_facts_is_rolled_back_and_dropped(database: str, tmp_path: Path) -> None:
    """The third reads chunks that the second has cut; nobody else cuts them like that from then on."""
    async with pipeline(tmp_path, database, OVERRIDES) as at_work:
        await at_work.fill(TEXTS)
        second, _ = await reindexing(at_work).start(CHANGES["chunker"][0])
        await at_work.reaches(second, "shadow")
        await promote(at_work, second)
        third, plan = await reindexing(at_work).start(CHANGES["embedder"][0], events_per_second=0.01)
        assert plan.topic == f"chunked.{second}"
        assert (await roll_back(at_work.pool, at_work.worker.builder.decisions.promoted)).generation == "g1"
        await at_work.push({"doc-0": f"Changed before the drop.\n{WORDS}", "early": f"Early.\n{WORDS}"})
        await drop(at_work, second)
        await at_work.push({"doc-0": f"Changed.\n{WORDS}", "doc-1": None, "late": f"Late.\n{WORDS}"})
        await reindexing(at_work).pace(third, {"events_per_second": None})
        await at_work.reaches(third, "shadow")
        await at_work.quiet()
        expected = set(TEXTS) - {"doc-1"} | {"early", "late"}
        assert await shown(at_work, third) == await shown(at_work, "g1") == expected
        await promote(at_work, third)
        await drop(at_work, "g1")
        await at_work.fill({"later": f"Later.\n{WORDS}", "doc-2": None})
        assert await shown(at_work, third) == expected - {"doc-2"} | {"later"}
        before = await checksum(at_work.pool)
        last = await reindexing(at_work).rebuild(keep=False)
        build = await at_work.reaches(last, "live")
        assert not build.engine_calls and await checksum(at_work.pool) == before
        assert await at_work.pool.fetchval("select count(*) from dead_letters") == 0


async def test_a_build_is_dropped_while_another_is_built_and_a_third_is_begun(database: str, tmp_path: Path) -> None:
    async with pipeline(tmp_path, database, OVERRIDES) as at_work:
        await at_work.fill(TEXTS)
        desk = reindexing(at_work)
        slow, _ = await desk.start(CHANGES["chunker"][0], events_per_second=0.01)
        other, _ = await desk.start(CHANGES["embedder"][0], events_per_second=0.01)
        await drop(at_work, slow)
        third, _ = await desk.start([*CHANGES["chunker"][0], *CHANGES["embedder"][0]])
        await at_work.push({"doc-0": f"Changed.\n{WORDS}", "doc-1": None, "late": f"Late.\n{WORDS}"})
        await at_work.reaches(third, "shadow")
        await promote(at_work, third)
        await desk.pace(other, {"events_per_second": None})
        await at_work.reaches(other, "shadow")
        await at_work.quiet()
        expected = set(TEXTS) - {"doc-1"} | {"late"}
        assert await shown(at_work, other) == await shown(at_work, third) == expected
        topics = {row["topic"] for row in await at_work.pool.fetch("select topic from topics")}
        assert not any(topic.endswith(f".{slow}") for topic in topics)
        assert set((await residue(at_work.pool, settled=True)).values()) == {0}


FIRST_TOPIC = {"parser": "accepted", "chunker": "ocr_done", "embedder": "chunked", "extractor": "chunked"}


async def test_what_the_log_no_longer_holds_is_foretold_and_nothing_is_begun(database: str, tmp_path: Path) -> None:
    async with pipeline(tmp_path, database, OVERRIDES) as at_work:
        await at_work.fill(dict(list(TEXTS.items())[:3]))
        desk = reindexing(at_work)
        assert all([(await desk.plan(CHANGES[change][0])).covered for change in FIRST_TOPIC])
        await at_work.pool.execute(
            "delete from events where position in (select min(position) from events where topic = any($1) group by topic)", ["accepted", "ocr_done", "chunked"]
        )
        for change, topic in FIRST_TOPIC.items():
            assert not (await desk.plan(CHANGES[change][0])).covered
            with pytest.raises(PermanentError, match=f"topic {topic} holds 2 of the 3") as refused:
                await desk.start(CHANGES[change][0])
            assert refused.value.code == "NOT_RETAINED"
        assert await at_work.pool.fetchval("select count(*) from generations") == 1
