"""Build a generation beside the live one, through changes, failures and restarts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from anabranch.config.loader import load_overrides, override_settings
from anabranch.config.overrides import Overrides
from anabranch.config.settings import Settings
from processors import TOPICS
from schemas.errors import ConfigurationError, InvalidRequest
from schemas.generations import IndexConfig
from schemas.ports.engines import TextEmbedding
from services.generations.reindex import start_rebuild
from services.generations.reindex_plan import OUTPUT_TOPICS
from services.generations.service import remove_generation
from sql.database import connect
from sql.index.generations import PgGenerationBuilds
from sql.operations.integrity import compute_checksum
from tests.fakes.null_embedder import NullEmbedder
from tests.support.pipeline import Pipeline, run_pipeline
from tests.support.reindex_cases import (
    OVERRIDES,
    SETTING_CHANGES,
    TEXTS,
    WORDS,
    make_overrides,
    make_reindex_service,
)

EMBEDDER_CHANGE = SETTING_CHANGES["embedder"][0]


async def test_shadow_at_barrier_equals_build_from_scratch(
    database: str, other_database: str, tmp_path: Path
) -> None:
    """Documents that arrive or change during the build end as in an index built from scratch."""
    changes = {
        "doc-0": f"Changed.\n{WORDS}",
        "doc-1": None,
        "late": f"Late.\n{WORDS}",
        "doc-2": TEXTS["doc-2"],
    }
    async with run_pipeline(tmp_path / "one", database, OVERRIDES) as at_work:
        await at_work.push_and_wait(TEXTS)
        name, _ = await make_reindex_service(at_work).start_reindex(EMBEDDER_CHANGE)
        await at_work.push(changes)
        await at_work.wait_for_state(name, "shadow")
        await at_work.wait_until_idle()
        shadow = await compute_checksum(at_work.pool, generation=name)
        barrier = await at_work.pool.fetchval(
            "select barrier from generations where name = $1", name
        )
        shared = {topic for topic in TOPICS if topic.per_generation} - {"embedded"}
        assert set(barrier) == shared and all(barrier.values())
    settings = override_settings(Settings(data_dir=tmp_path / "other"), EMBEDDER_CHANGE)
    async with run_pipeline(tmp_path / "other", other_database, OVERRIDES, settings) as fresh:
        await fresh.push_and_wait(TEXTS)
        await fresh.push_and_wait(changes)
        assert await compute_checksum(fresh.pool) == shadow


async def test_build_can_be_paused_resumed_and_throttled(database: str, tmp_path: Path) -> None:
    async with run_pipeline(tmp_path, database, OVERRIDES) as at_work:
        await at_work.push_and_wait(TEXTS)
        name = await start_rebuild(
            at_work.worker.storage,
            at_work.worker.builder.decisions,
            keep_previous=False,
            events_per_second=0.01,
        )
        desk = make_reindex_service(at_work)
        await desk.change_pace(name, {"paused": True})
        await asyncio.sleep(1.0)
        assert await count_visible(at_work, name) == 0
        await at_work.push_and_wait_until_visible(
            {"while": "Uploads are searchable while it rests."}
        )
        pace = await desk.change_pace(name, {"paused": False})
        assert pace["events_per_second"] == pytest.approx(0.01), "what is not spoken of stays"
        await desk.change_pace(name, {"events_per_second": 500})
        await at_work.wait_for_state(name, "live")
        with pytest.raises(InvalidRequest) as refused:
            await desk.change_pace(name, {"paused": True})
        assert refused.value.code == "GENERATION_IS_BUILT"


async def test_concurrent_reindex_requests_create_separate_generations(
    database: str, tmp_path: Path
) -> None:
    wanted = [SETTING_CHANGES["chunker"], SETTING_CHANGES["embedder"]]
    async with run_pipeline(tmp_path, database, OVERRIDES) as at_work:
        await at_work.push_and_wait(TEXTS)
        desk = make_reindex_service(at_work)
        names = [
            name
            for name, _ in await asyncio.gather(*[desk.start_reindex(sets) for sets, _ in wanted])
        ]
        assert sorted(names) == ["g2", "g3"]
        for name, (sets, stages) in zip(names, wanted, strict=True):
            build = await at_work.wait_for_state(name, "shadow")
            assert load_overrides(at_work.worker.settings, name) == sets
            assert {
                topic for topic in build.generation.topics.values() if topic.endswith(name)
            } == {f"{OUTPUT_TOPICS[stage]}.{name}" for stage in stages}
            assert await count_visible(at_work, name) == len(TEXTS)


async def test_concurrent_rebuild_requests_create_one_generation(
    database: str, tmp_path: Path
) -> None:
    async with run_pipeline(tmp_path, database, OVERRIDES) as at_work:
        await at_work.push_and_wait(TEXTS)
        desk = make_reindex_service(at_work)
        assert list(
            await asyncio.gather(
                desk.start_rebuild(keep_previous=False), desk.start_rebuild(keep_previous=False)
            )
        ) == ["g2", "g2"]
        await at_work.wait_for_state("g2", "live")


async def test_aborted_build_releases_everything_while_engine_hangs(
    database: str, tmp_path: Path
) -> None:
    sulking = StallingEmbedder()
    async with run_pipeline(tmp_path, database, stall_openai(sulking)) as at_work:
        await at_work.push_and_wait(
            {f"doc-{number}": f"Number {number}.\n{WORDS}" for number in range(40)}
        )
        name, _ = await make_reindex_service(at_work).start_reindex(EMBEDDER_CHANGE)
        await at_work.wait_for(lambda: count_visible(at_work, name))
        builder = at_work.worker.builder
        assert (
            await remove_generation(
                at_work.pool, at_work.worker.storage.log, builder.decisions, name
            )
        ).removed

        async def idle() -> bool:
            return not builder.build_tasks and not builder.removal_tasks

        await at_work.wait_for(idle)
        async with PgGenerationBuilds(at_work.pool).try_lock(name) as mine:
            assert mine, "nobody else works on it"
        assert (await make_reindex_service(at_work).start_reindex(SETTING_CHANGES["chunker"][0]))[
            0
        ] == "g3"


async def test_failed_build_resumes_on_request(database: str, tmp_path: Path) -> None:
    """Resume after the missing engine is available again."""
    missing = ["the address of the model server"]

    def engines(config: IndexConfig) -> Overrides:
        if missing and config.embed.engine == "openai":
            raise ConfigurationError("nobody says where the model is served", code="MISCONFIGURED")
        return make_overrides(config)

    async with run_pipeline(tmp_path, database, Overrides(for_config=engines)) as at_work:
        await at_work.push_and_wait(TEXTS)
        desk = make_reindex_service(at_work)
        name, _ = await desk.start_reindex(EMBEDDER_CHANGE)

        async def stopped() -> bool:
            build = await at_work.fetch_build(name)
            return build is not None and build.error is not None

        await at_work.wait_for(stopped)
        assert (await desk.get_build(name))["error"]["code"] == "MISCONFIGURED"
        await at_work.push_and_wait_until_visible({"while": "Uploads are searchable all the same."})
        missing.clear()
        assert (await desk.change_pace(name, {"paused": False}))["error"] is None
        await at_work.wait_for_state(name, "shadow")
        assert await count_visible(at_work, name) == len(TEXTS) + 1


INVALID_SETTINGS = {
    "chunk.child_token=100": "UNKNOWN_SETTING",
    "chunk.child_tokens=many": "BAD_SETTING",
    "chunk.child_tokens": "BAD_SETTING",
    "embed.dimension=5000": "BAD_SETTING",
    "log.encrypt=false": "SETTING_NOT_APPROVED",
    "chunk.child_tokens=330": "NOTHING_CHANGES",
}


async def test_plan_names_the_settings_that_change(database: str, tmp_path: Path) -> None:
    async with run_pipeline(tmp_path, database, OVERRIDES) as at_work:
        await at_work.push_and_wait({})
        plan = await make_reindex_service(at_work).plan_build(
            ["chunk.child_tokens=120", "chunk.overlap=0.3"]
        )
        assert plan.to_dict()["settings"]["chunk.child_tokens"] == {"from": 330, "to": 120}
        assert plan.to_dict()["settings"].keys() == {"chunk.child_tokens", "chunk.overlap"}


async def test_invalid_index_settings_are_a_client_error(database: str, tmp_path: Path) -> None:
    async with run_pipeline(tmp_path, database, OVERRIDES) as at_work:
        await at_work.push_and_wait({})
        desk = make_reindex_service(at_work)
        for setting, code in INVALID_SETTINGS.items():
            for wanted in (desk.plan_build([setting]), desk.start_reindex([setting])):
                with pytest.raises(InvalidRequest) as refused:
                    await wanted
                assert refused.value.code == code and refused.value.remedy
        assert await at_work.pool.fetchval("select count(*) from generation_builds") == 0


class StallingEmbedder(NullEmbedder):
    """Embed a few texts, then never answer again."""

    def __init__(self) -> None:
        super().__init__(dimension=24)
        self.left = 20

    async def embed(self, texts: Sequence[str]) -> list[TextEmbedding]:
        self.left -= len(texts)
        if self.left < 0:
            await asyncio.Event().wait()
        return await super().embed(texts)


def stall_openai(embedder: StallingEmbedder) -> Overrides:
    """Return overrides with this embedder for generations of the engine `openai`."""

    def engines(config: IndexConfig) -> Overrides:
        plain = make_overrides(config)
        return replace(plain, embedder=embedder) if config.embed.engine == "openai" else plain

    return Overrides(for_config=engines)


async def test_replacement_worker_resumes_build(database: str, tmp_path: Path) -> None:
    """Only consumer offsets and memoized engine results survive the first worker."""
    sulking, many = (
        StallingEmbedder(),
        {f"doc-{number}": f"Number {number}.\n{WORDS}" for number in range(40)},
    )
    async with run_pipeline(tmp_path, database, stall_openai(sulking)) as at_work:
        await at_work.push_and_wait(many)
        before = await compute_checksum(at_work.pool)
        name, _ = await make_reindex_service(at_work).start_reindex(EMBEDDER_CHANGE)
        await at_work.wait_for(lambda: count_visible(at_work, name))
    async with run_pipeline(tmp_path, database, OVERRIDES) as at_work:
        already = await at_work.pool.fetchval(
            "select count(distinct document_id) from engine_results where engine = $1",
            sulking.fingerprint,
        )
        assert 0 < already < len(many)
        await at_work.wait_for_state(name, "shadow")
        assert await count_visible(at_work, name) == len(many)
        assert await compute_checksum(at_work.pool) == before
        assert at_work.count_engine_calls() == {"embed": len(many) - already}


async def count_visible(at_work: Pipeline, generation: str) -> int:
    return int(
        await at_work.pool.fetchval(
            "select count(*) from visible where generation = $1", generation
        )
    )


async def test_documents_stay_fresh_during_concurrent_index_build(
    database: str, tmp_path: Path
) -> None:
    """The build is held in the middle by an older reader; built without `concurrently` it would
    hold back the readers of the log, and uploads with them.
    """
    async with run_pipeline(tmp_path, database, OVERRIDES) as at_work:
        await at_work.push_and_wait(TEXTS)
        reader = await connect(database, name="test")
        transaction = reader.transaction(isolation="repeatable_read")
        await transaction.start()
        await reader.fetch("select count(*) from child_chunks")
        name = await start_rebuild(
            at_work.worker.storage, at_work.worker.builder.decisions, keep_previous=False
        )
        await at_work.wait_for(lambda: is_index_building(at_work, name))
        await at_work.push_and_wait_until_visible(
            {f"fresh-{number}": f"Fresh {number}.\n{WORDS}" for number in range(5)}
        )
        assert await is_index_building(at_work, name)
        await transaction.rollback()
        await reader.close()
        await at_work.wait_for_state(name, "live")


async def is_index_building(at_work: Pipeline, name: str) -> bool:
    """Return whether an index of the generation is under construction."""
    found = await at_work.pool.fetchval(
        "select count(*) from pg_stat_progress_create_index p join pg_class c on c.oid = p.relid "
        "where c.relname like '%\\_' || $1",
        name,
    )
    return bool(found)
