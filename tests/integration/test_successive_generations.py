"""Generations survive the drop of those that they were derived from."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.config.loader import load_overrides
from schemas.errors import InvalidRequest, PermanentError
from sql.index.generation_switch import roll_back
from sql.operations.integrity import check_integrity, compute_checksum
from tests.support.pipeline import Pipeline, run_pipeline
from tests.support.reindex_cases import (
    OVERRIDES,
    SETTING_CHANGES,
    TEXTS,
    WORDS,
    drop_and_publish,
    make_reindex_service,
    promote_generation,
)


async def fetch_visible_ids(at_work: Pipeline, generation: str) -> set[str]:
    rows = await at_work.pool.fetch(
        "select external_id from visible v join documents d on d.id = v.document_id "
        "where generation = $1",
        generation,
    )
    return {row["external_id"] for row in rows}


async def test_generation_outlives_both_generations_it_derives_from(
    database: str, tmp_path: Path
) -> None:
    """Another chunker is promoted, then another embedder for its chunks; whoever states the facts
    of `chunked.g2` is dropped, and another goes on.
    """
    async with run_pipeline(tmp_path, database, OVERRIDES) as at_work:
        await at_work.push_and_wait(TEXTS)
        chunker, embedder = SETTING_CHANGES["chunker"], SETTING_CHANGES["embedder"]
        second, _ = await make_reindex_service(at_work).start_reindex(chunker[0])
        await at_work.wait_for_state(second, "shadow")
        await promote_generation(at_work, second)
        third, plan = await make_reindex_service(at_work).start_reindex(embedder[0])
        assert (plan.stages, plan.topic) == (["embed"], f"chunked.{second}")
        build = await at_work.wait_for_state(third, "shadow")
        assert dict(build.engine_calls) == plan.to_dict()["engine_calls"]
        await promote_generation(at_work, third)
        for name in ("g1", second):
            await drop_and_publish(at_work, name)
        await at_work.push_and_wait(
            {"doc-0": f"Changed.\n{WORDS}", "doc-1": None, "late": f"Late.\n{WORDS}"}
        )
        assert await fetch_visible_ids(at_work, third) == set(TEXTS) - {"doc-1"} | {"late"}
        before = await compute_checksum(at_work.pool)
        last = await make_reindex_service(at_work).start_rebuild(keep_previous=False)
        build = await at_work.wait_for_state(last, "live")
        assert not build.engine_calls and await compute_checksum(at_work.pool) == before
        assert load_overrides(at_work.worker.settings, last) == [*chunker[0], *embedder[0]], (
            "it is made with what the others were made with"
        )
        with pytest.raises(InvalidRequest) as same:
            await make_reindex_service(at_work).plan_build([])
        assert same.value.code == "NOTHING_CHANGES"


async def test_build_continues_when_its_producing_generation_is_dropped(
    database: str, tmp_path: Path
) -> None:
    """The third generation reads chunks that only the dropped second one produces."""
    async with run_pipeline(tmp_path, database, OVERRIDES) as at_work:
        await at_work.push_and_wait(TEXTS)
        second, _ = await make_reindex_service(at_work).start_reindex(SETTING_CHANGES["chunker"][0])
        await at_work.wait_for_state(second, "shadow")
        await promote_generation(at_work, second)
        third, plan = await make_reindex_service(at_work).start_reindex(
            SETTING_CHANGES["embedder"][0], events_per_second=0.01
        )
        assert plan.topic == f"chunked.{second}"
        assert (
            await roll_back(at_work.pool, at_work.worker.builder.decisions.publish_promoted)
        ).generation == "g1"
        await at_work.push(
            {"doc-0": f"Changed before the drop.\n{WORDS}", "early": f"Early.\n{WORDS}"}
        )
        await drop_and_publish(at_work, second)
        await at_work.push(
            {"doc-0": f"Changed.\n{WORDS}", "doc-1": None, "late": f"Late.\n{WORDS}"}
        )
        await make_reindex_service(at_work).change_pace(third, {"events_per_second": None})
        await at_work.wait_for_state(third, "shadow")
        await at_work.wait_until_idle()
        expected = set(TEXTS) - {"doc-1"} | {"early", "late"}
        assert (
            await fetch_visible_ids(at_work, third)
            == await fetch_visible_ids(at_work, "g1")
            == expected
        )
        await promote_generation(at_work, third)
        await drop_and_publish(at_work, "g1")
        await at_work.push_and_wait({"later": f"Later.\n{WORDS}", "doc-2": None})
        assert await fetch_visible_ids(at_work, third) == expected - {"doc-2"} | {"later"}
        before = await compute_checksum(at_work.pool)
        last = await make_reindex_service(at_work).start_rebuild(keep_previous=False)
        build = await at_work.wait_for_state(last, "live")
        assert not build.engine_calls and await compute_checksum(at_work.pool) == before
        assert await at_work.pool.fetchval("select count(*) from dead_letters") == 0


async def test_build_is_dropped_while_others_are_built(database: str, tmp_path: Path) -> None:
    async with run_pipeline(tmp_path, database, OVERRIDES) as at_work:
        await at_work.push_and_wait(TEXTS)
        desk = make_reindex_service(at_work)
        slow, _ = await desk.start_reindex(SETTING_CHANGES["chunker"][0], events_per_second=0.01)
        other, _ = await desk.start_reindex(SETTING_CHANGES["embedder"][0], events_per_second=0.01)
        await drop_and_publish(at_work, slow)
        third, _ = await desk.start_reindex(
            [*SETTING_CHANGES["chunker"][0], *SETTING_CHANGES["embedder"][0]]
        )
        await at_work.push(
            {"doc-0": f"Changed.\n{WORDS}", "doc-1": None, "late": f"Late.\n{WORDS}"}
        )
        await at_work.wait_for_state(third, "shadow")
        await promote_generation(at_work, third)
        await desk.change_pace(other, {"events_per_second": None})
        await at_work.wait_for_state(other, "shadow")
        await at_work.wait_until_idle()
        expected = set(TEXTS) - {"doc-1"} | {"late"}
        assert (
            await fetch_visible_ids(at_work, other)
            == await fetch_visible_ids(at_work, third)
            == expected
        )
        topics = {row["topic"] for row in await at_work.pool.fetch("select topic from topics")}
        assert not any(topic.endswith(f".{slow}") for topic in topics)
        assert set((await check_integrity(at_work.pool, assume_idle=True)).values()) == {0}


FIRST_INPUT_TOPIC = {
    "parser": "accepted",
    "chunker": "ocr_done",
    "embedder": "chunked",
    "extractor": "chunked",
}


async def test_reindex_with_expired_records_is_refused_in_plan(
    database: str, tmp_path: Path
) -> None:
    async with run_pipeline(tmp_path, database, OVERRIDES) as at_work:
        await at_work.push_and_wait(dict(list(TEXTS.items())[:3]))
        desk = make_reindex_service(at_work)
        assert all(
            [
                (await desk.plan_build(SETTING_CHANGES[change][0])).is_covered
                for change in FIRST_INPUT_TOPIC
            ]
        )
        await at_work.pool.execute(
            "delete from events where position in (select min(position) from events "
            "where topic = any($1) group by topic)",
            ["accepted", "ocr_done", "chunked"],
        )
        for change, topic in FIRST_INPUT_TOPIC.items():
            assert not (await desk.plan_build(SETTING_CHANGES[change][0])).is_covered
            with pytest.raises(PermanentError, match=f"topic {topic} holds 2 of the 3") as refused:
                await desk.start_reindex(SETTING_CHANGES[change][0])
            assert refused.value.code == "NOT_RETAINED"
        assert await at_work.pool.fetchval("select count(*) from generations") == 1
