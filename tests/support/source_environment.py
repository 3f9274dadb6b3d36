"""Run a worker and an API in this process and inspect a source's documents."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from anabranch.composition.api import prepare_api
from anabranch.composition.worker import Worker, prepare_worker
from anabranch.config.loader import load_settings
from anabranch.config.overrides import Overrides
from processors import STAGES
from services.generations.decisions import FIRST_GENERATION
from streams.stage_consumer import format_group_name
from tests.fakes.null_embedder import NullEmbedder
from tests.support.api_client import api_client
from tests.support.eventually import eventually
from tests.support.pipeline import POOL_SIZE
from tests.support.simulated_pipeline import LineParser


@dataclass
class SourceEnvironment:
    http: httpx2.AsyncClient
    worker: Worker

    async def add_source(self, name: str, takes: Mapping[str, Any], **more: Any) -> None:
        response = await self.http.post(
            "/v1/sources", json={"name": name, "connector": takes, **more}
        )
        assert response.status_code == 202, response.text

    async def fetch_source(self, name: str) -> dict[str, Any]:
        return dict((await self.http.get(f"/v1/sources/{name}")).json())

    async def fetch_visible_texts(self, source: str) -> dict[str, str]:
        """Return the visible texts by external id."""
        rows = await self.worker.storage.pool.fetch(
            "select d.external_id, t.markdown from documents d "
            "join visible v on v.document_id = d.id "
            "join revision_texts t on t.generation = v.generation and t.document_id = d.id "
            "and t.ord = v.ord where d.source = $1",
            f"anabranch/source/{source}",
        )
        return {row["external_id"]: row["markdown"] for row in rows}

    async def wait_for_texts(self, source: str, expected: Mapping[str, str]) -> None:
        """Wait until the source's documents are these and nothing is pending."""

        async def observe() -> tuple[dict[str, str], int, list[str]]:
            texts = await self.fetch_visible_texts(source)
            return (
                {name: text.strip() for name, text in texts.items()},
                await self.count_pending(),
                await self.fetch_dead_letters(),
            )

        await eventually(
            observe,
            lambda seen: seen[:2] == (dict(expected), 0),
            what=f"the {len(expected)} documents of source {source}",
        )

    async def count_pending(self) -> int:
        """Count the events that a document still needs to become searchable."""
        return sum(
            [
                await self.worker.storage.log.count_pending(
                    format_group_name(
                        stage.name, None if stage.serves_all_generations else FIRST_GENERATION
                    ),
                    stage.topic,
                )
                for stage in STAGES
                if stage.fails_document
            ]
        )

    async def fetch_dead_letters(self) -> list[str]:
        return [
            f"{row['code']} {row['detail']}"
            for row in await self.worker.storage.pool.fetch("select code, detail from dead_letters")
        ]


@asynccontextmanager
async def run_source_environment(
    folder: Path, dsn: str, *sets: str, overrides: Overrides | None = None
) -> AsyncIterator[SourceEnvironment]:
    pools = [f"database.worker_pool={POOL_SIZE}", f"database.api_pool={POOL_SIZE}"]
    settings = load_settings(data_dir=folder, sets=["logging.level=error", *pools, *sets])
    chosen = overrides or Overrides(parser=LineParser(), embedder=NullEmbedder(32, 8))
    async with prepare_worker(settings, dsn, overrides=chosen) as worker:
        working = asyncio.create_task(worker.run())
        try:
            async with (
                prepare_api(settings, dsn, overrides=chosen) as services,
                api_client(services) as http,
            ):
                yield SourceEnvironment(http, worker)
            if working.done():
                working.result()
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
