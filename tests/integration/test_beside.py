"""What building a generation beside the live one leaves alone, and what it survives."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from anabranch.composition.overrides import Overrides
from anabranch.desk.rebuilding import start_rebuild
from anabranch.settings import Settings
from anabranch.settings_loading import amended
from engines.embed.null import NullEmbedder
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
        name, _ = await reindexing(at_work, tmp_path / "one").start(EMBEDDER)
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
        books = PgBuilds(at_work.pool)
        await books.set_pace("g2", paused=True, events_per_second=None)
        name = await start_rebuild(at_work.worker.storage, at_work.worker.builder.decisions, keep=False)
        await at_work.reaches(name, "building")
        await asyncio.sleep(1.0)
        assert await at_work.pool.fetchval("select count(*) from visible where generation = $1", name) == 0
        await at_work.fill_live({"while": "Uploads are searchable while it rests."})
        await books.set_pace(name, paused=False, events_per_second=500)
        await at_work.reaches(name, "live")


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
        name, _ = await reindexing(at_work, tmp_path).start(EMBEDDER)
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
