"""What building a generation beside the live one leaves alone, and what it survives."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from anabranch.composition.overrides import Overrides
from anabranch.desk.dropping import drop_generation
from anabranch.desk.planning import OUTPUTS
from anabranch.desk.rebuilding import start_rebuild
from anabranch.generation_settings import sets_of
from anabranch.settings import Settings
from anabranch.settings_loading import amended
from engines.embed.null import NullEmbedder
from schemas.errors import ConfigurationError, InvalidRequest
from schemas.generations import IndexConfig
from schemas.ports.engines import Embedded
from sql.builds import PgBuilds
from sql.checksum import checksum
from sql.pool import connect
from tests.integration.test_reindex import CHANGES, OVERRIDES, TEXTS, WORDS, engines_of, reindexing
from tests.pipeline import Pipeline, pipeline

EMBEDDER = CHANGES["embedder"][0]


async def test_the_shadow_at_its_barrier_equals_a_build_from_scratch(database: str, other_database: str, tmp_path: Path) -> None:
    """Arrived before it, while it was built, and changed meanwhile: in the end the rows are those of an index that was made so from the start."""
    changes = {"doc-0": f"Changed.\n{WORDS}", "doc-1": None, "late": f"Late.\n{WORDS}", "doc-2": TEXTS["doc-2"]}
    async with pipeline(tmp_path / "one", database, OVERRIDES) as at_work:
        await at_work.fill(TEXTS)
        name, _ = await reindexing(at_work).start(EMBEDDER)
        await at_work.push(changes)
        await at_work.reaches(name, "shadow")
        await at_work.quiet()
        shadow = await checksum(at_work.pool, generation=name)
        barrier = await at_work.pool.fetchval("select barrier from generations where name = $1", name)
        assert set(barrier) == {"ocr_done", "chunked", "entities"} and all(barrier.values())
    settings = amended(Settings(data_dir=tmp_path / "other"), EMBEDDER)
    async with pipeline(tmp_path / "other", other_database, OVERRIDES, settings) as fresh:
        await fresh.fill(TEXTS)
        await fresh.fill(changes)
        assert await checksum(fresh.pool) == shadow


async def test_a_build_rests_goes_on_and_goes_as_slowly_as_it_is_told(database: str, tmp_path: Path) -> None:
    async with pipeline(tmp_path, database, OVERRIDES) as at_work:
        await at_work.fill(TEXTS)
        name = await start_rebuild(at_work.worker.storage, at_work.worker.builder.decisions, keep=False, events_per_second=0.01)
        desk = reindexing(at_work)
        await desk.pace(name, {"paused": True})
        await asyncio.sleep(1.0)
        assert await shown(at_work, name) == 0
        await at_work.fill_live({"while": "Uploads are searchable while it rests."})
        told = await desk.pace(name, {"paused": False})
        assert told["events_per_second"] == pytest.approx(0.01), "what is not spoken of stays"
        await desk.pace(name, {"events_per_second": 500})
        await at_work.reaches(name, "live")
        with pytest.raises(InvalidRequest) as refused:
            await desk.pace(name, {"paused": True})
        assert refused.value.code == "GENERATION_IS_BUILT"


async def test_decisions_at_the_same_moment_make_a_generation_each_with_its_own_settings(database: str, tmp_path: Path) -> None:
    wanted = [CHANGES["chunker"], CHANGES["embedder"]]
    async with pipeline(tmp_path, database, OVERRIDES) as at_work:
        await at_work.fill(TEXTS)
        desk = reindexing(at_work)
        names = [name for name, _ in await asyncio.gather(*[desk.start(sets) for sets, _ in wanted])]
        assert sorted(names) == ["g2", "g3"]
        for name, (sets, stages) in zip(names, wanted, strict=True):
            build = await at_work.reaches(name, "shadow")
            assert sets_of(desk.settings, name) == sets
            assert {topic for topic in build.generation.topics.values() if topic.endswith(name)} == {f"{OUTPUTS[stage]}.{name}" for stage in stages}
            assert await shown(at_work, name) == len(TEXTS)


async def test_two_rebuilds_at_the_same_moment_are_one(database: str, tmp_path: Path) -> None:
    async with pipeline(tmp_path, database, OVERRIDES) as at_work:
        await at_work.fill(TEXTS)
        desk = reindexing(at_work)
        assert list(await asyncio.gather(desk.rebuild(keep=False), desk.rebuild(keep=False))) == ["g2", "g2"]
        await at_work.reaches("g2", "live")


async def test_a_build_that_is_given_up_lets_go_of_everything_also_while_its_engine_does_not_answer(database: str, tmp_path: Path) -> None:
    sulking = Sulking()

    def engines(config: IndexConfig) -> Overrides:
        return replace(engines_of(config), embedder=sulking) if config.embed.engine == "openai" else engines_of(config)

    async with pipeline(tmp_path, database, Overrides(for_config=engines)) as at_work:
        await at_work.fill({f"doc-{number}": f"Number {number}.\n{WORDS}" for number in range(40)})
        name, _ = await reindexing(at_work).start(EMBEDDER)
        await at_work.until(lambda: shown(at_work, name))
        builder = at_work.worker.builder
        assert (await drop_generation(at_work.pool, at_work.worker.storage.log, builder.decisions, name)).removed

        async def idle() -> bool:
            return not builder.working and not builder.removing

        await at_work.until(idle)
        async with PgBuilds(at_work.pool).alone(name) as mine:
            assert mine, "nobody else works on it"
        assert (await reindexing(at_work).start(CHANGES["chunker"][0]))[0] == "g3"


async def test_a_build_that_stopped_goes_on_when_it_is_told_to(database: str, tmp_path: Path) -> None:
    """Whatever this worker lacked is mended meanwhile."""
    missing = ["the address of the model server"]

    def engines(config: IndexConfig) -> Overrides:
        if missing and config.embed.engine == "openai":
            raise ConfigurationError("nobody says where the model is served", code="MISCONFIGURED")
        return engines_of(config)

    async with pipeline(tmp_path, database, Overrides(for_config=engines)) as at_work:
        await at_work.fill(TEXTS)
        desk = reindexing(at_work)
        name, _ = await desk.start(EMBEDDER)

        async def stopped() -> bool:
            build = await at_work.build(name)
            return build is not None and build.error is not None

        await at_work.until(stopped)
        assert (await desk.show(name))["error"]["code"] == "MISCONFIGURED"
        await at_work.fill_live({"while": "Uploads are searchable all the same."})
        missing.clear()
        assert (await desk.pace(name, {"paused": False}))["error"] is None
        await at_work.reaches(name, "shadow")
        assert await shown(at_work, name) == len(TEXTS) + 1


MISTAKES = {
    "chunk.child_token=100": "UNKNOWN_SETTING",
    "chunk.child_tokens=many": "BAD_SETTING",
    "chunk.child_tokens": "BAD_SETTING",
    "embed.dimension=5000": "BAD_SETTING",
    "log.encrypt=false": "SETTING_NOT_APPROVED",
    "chunk.child_tokens=200": "NOTHING_CHANGES",
}


async def test_plan_names_the_settings_that_change(database: str, tmp_path: Path) -> None:
    async with pipeline(tmp_path, database, OVERRIDES) as at_work:
        await at_work.fill({})
        plan = await reindexing(at_work).plan(["chunk.child_tokens=120", "chunk.overlap=0.3"])
        assert plan.body()["settings"]["chunk.child_tokens"] == {"from": 200, "to": 120}
        assert plan.body()["settings"].keys() == {"chunk.child_tokens", "chunk.overlap"}


async def test_settings_that_no_index_can_be_made_with_are_the_clients_mistake(database: str, tmp_path: Path) -> None:
    async with pipeline(tmp_path, database, OVERRIDES) as at_work:
        await at_work.fill({})
        desk = reindexing(at_work)
        for setting, code in MISTAKES.items():
            for wanted in (desk.plan([setting]), desk.start([setting])):
                with pytest.raises(InvalidRequest) as refused:
                    await wanted
                assert refused.value.code == code and refused.value.remedy
        assert await at_work.pool.fetchval("select count(*) from generation_builds") == 0


class Sulking(NullEmbedder):
    """Embeds a few texts, and then never answers again."""

    def __init__(self) -> None:
        super().__init__(dimension=24)
        self.left = 20

    async def embed(self, texts: Sequence[str]) -> list[Embedded]:
        self.left -= len(texts)
        if self.left < 0:
            await asyncio.Event().wait()
        return await super().embed(texts)


async def test_a_worker_that_is_replaced_in_the_middle_goes_on_where_it_was(database: str, tmp_path: Path) -> None:
    """Nothing is remembered but the readers' places in the log, and what engines have said."""
    sulking, many = Sulking(), {f"doc-{number}": f"Number {number}.\n{WORDS}" for number in range(40)}

    def engines(config: IndexConfig) -> Overrides:
        return replace(engines_of(config), embedder=sulking) if config.embed.engine == "openai" else engines_of(config)

    async with pipeline(tmp_path, database, Overrides(for_config=engines)) as at_work:
        await at_work.fill(many)
        before = await checksum(at_work.pool)
        name, _ = await reindexing(at_work).start(EMBEDDER)
        await at_work.until(lambda: shown(at_work, name))
    async with pipeline(tmp_path, database, OVERRIDES) as at_work:
        already = await at_work.pool.fetchval("select count(distinct document_id) from memo where engine = $1", sulking.fingerprint)
        assert 0 < already < len(many)
        await at_work.reaches(name, "shadow")
        assert await shown(at_work, name) == len(many)
        assert await checksum(at_work.pool) == before
        assert at_work.engine_calls() == {"embed": len(many) - already}


async def shown(at_work: Pipeline, generation: str) -> int:
    return int(await at_work.pool.fetchval("select count(*) from visible where generation = $1", generation))


async def test_documents_stay_fresh_while_an_index_is_built_beside_them(database: str, tmp_path: Path) -> None:
    """The build is held in the middle by an older reader; built without `concurrently` it would hold back the readers of the log, and uploads with them."""
    async with pipeline(tmp_path, database, OVERRIDES) as at_work:
        await at_work.fill(TEXTS)
        reader = await connect(database, name="test")
        transaction = reader.transaction(isolation="repeatable_read")
        await transaction.start()
        await reader.fetch("select count(*) from child_chunks")
        name = await start_rebuild(at_work.worker.storage, at_work.worker.builder.decisions, keep=False)
        await at_work.until(lambda: building(at_work, name))
        await at_work.fill_live({f"fresh-{number}": f"Fresh {number}.\n{WORDS}" for number in range(5)})
        assert await building(at_work, name)
        await transaction.rollback()
        await reader.close()
        await at_work.reaches(name, "live")


async def building(at_work: Pipeline, name: str) -> bool:
    """An index of the generation is on its way, and waits."""
    found = await at_work.pool.fetchval(
        "select count(*) from pg_stat_progress_create_index p join pg_class c on c.oid = p.relid where c.relname like '%\\_' || $1", name
    )
    return bool(found)
