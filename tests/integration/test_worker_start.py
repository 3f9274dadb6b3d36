"""Workers that start in any order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

from anabranch.composition.overrides import Overrides
from anabranch.composition.worker import Worker, prepare_worker
from anabranch.settings import Settings
from anabranch.stages import stages_named
from engines.embed.null import NullEmbedder
from processors import STAGES
from schemas.events import Content, DocumentReceived
from sql.pool import Pool
from streams.submission import submission
from tests.property.world import LineParser

ALL_BUT_CONTROL = [stage.name for stage in STAGES if stage.name != "control"]


@asynccontextmanager
async def working(folder: Path, dsn: str, *stages: str) -> AsyncIterator[Worker]:
    overrides = Overrides(parser=LineParser(), embedder=NullEmbedder(dimension=8))
    async with prepare_worker(Settings(data_dir=folder), dsn, stages=stages_named(stages), overrides=overrides) as worker:
        running = asyncio.create_task(worker.run())
        try:
            yield worker
            assert not running.done(), running
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def said(pool: Pool, topic: str) -> int:
    return int(await pool.fetchval("select count(*) from events where topic = $1", topic))


async def test_stages_wait_for_the_tables_of_their_generation_whichever_worker_makes_them(database: str, tmp_path: Path) -> None:
    async with working(tmp_path, database, *ALL_BUT_CONTROL) as worker:
        pool, event = worker.storage.pool, DocumentReceived(external_id="early", content=Content(text="Herons wait."))
        await worker.storage.log.append([await submission(event, "1", time=datetime(2026, 1, 1, tzinfo=UTC), codec=worker.storage.codec)])
        async with asyncio.timeout(60):
            while not await said(pool, "accepted"):
                await asyncio.sleep(0.02)
            async with working(tmp_path, database, "control"):
                while not await said(pool, "outcomes"):
                    await asyncio.sleep(0.02)
        assert await pool.fetchval("select count(*) from visible") == 1
        assert await said(pool, "dead_letters") == 0
