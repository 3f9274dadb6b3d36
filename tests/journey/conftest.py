"""The whole system in this process over a database of the test's own: worker, API and everything between, with a model that needs no time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from anabranch.composition.api import prepare_api
from anabranch.composition.overrides import Overrides
from anabranch.composition.worker import Worker, prepare_worker
from anabranch.process.database import FOLDER
from anabranch.settings import Settings
from anabranch.settings_loading import load_settings
from engines.embed.null import NullEmbedder
from sql.embedded import EmbeddedPostgres
from tests.api_access import api_client

ENDED = {"searchable", "failed", "superseded", "withdrawn"}
PATIENCE_S = 90


@dataclass
class World:
    """`http` speaks to the API, `worker` is at work."""

    http: httpx2.AsyncClient
    worker: Worker
    settings: Settings

    async def ingest(self, body: bytes | str, filename: str = "note.md", **fields: Any) -> dict[str, Any]:
        content = body.encode() if isinstance(body, str) else body
        response = await self.http.post("/v1/ingest", files={"file": (filename, content)}, data=fields)
        assert response.status_code == 202, response.text
        return dict(response.json())

    async def ended(self, receipt: dict[str, Any]) -> dict[str, Any]:
        """The status of a job once nothing more will happen to it."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                response = await self.http.get(f"/v1/ingest/status/{receipt['ingestion_job_id']}")
                if response.status_code == 200 and response.json()["state"] in ENDED:
                    return dict(response.json())
                await asyncio.sleep(0.02)

    async def through(self, receipt: dict[str, Any]) -> dict[str, Any]:
        """The status of a job once all its stages are done, the graph's too, which no search waits for."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                status = (await self.http.get(f"/v1/ingest/status/{receipt['ingestion_job_id']}")).json()
                if all(line["state"] == "done" for line in status["stages"]):
                    return dict(status)
                await asyncio.sleep(0.02)

    async def searchable(self, body: bytes | str, filename: str = "note.md", **fields: Any) -> dict[str, Any]:
        receipt = await self.ingest(body, filename, **fields)
        status = await self.ended(receipt)
        assert status["state"] == "searchable", status
        return receipt

    async def ask(self, question: str, **options: Any) -> dict[str, Any]:
        response = await self.http.post("/v1/query", json={"query": question, **options})
        assert response.status_code == 200, response.text
        return dict(response.json())

    async def search(self, text: str, **options: Any) -> list[dict[str, Any]]:
        response = await self.http.post("/v1/search", json={"query": text, **options})
        assert response.status_code == 200, response.text
        return list(response.json()["results"])


@asynccontextmanager
async def running(settings: Settings, dsn: str, overrides: Overrides) -> AsyncIterator[World]:
    async with prepare_worker(settings, dsn, overrides=overrides) as worker:
        working = asyncio.create_task(worker.run())
        try:
            async with prepare_api(settings, dsn, overrides=overrides) as services, api_client(services) as http:
                await _ready(http)
                yield World(http, worker, settings)
            if working.done():
                working.result()
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)


async def _ready(http: httpx2.AsyncClient) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while (await http.get("/readyz")).status_code != 200:
            await asyncio.sleep(0.02)


@pytest.fixture
def settings(tmp_path: Path, log_sets: list[str]) -> Settings:
    return load_settings(data_dir=tmp_path / "data", sets=["logging.level=error", *log_sets])


@pytest.fixture
def overrides() -> Overrides:
    return Overrides(embedder=NullEmbedder(64, 16))


@pytest.fixture
async def world(settings: Settings, database: str, overrides: Overrides) -> AsyncIterator[World]:
    async with running(settings, database, overrides) as found:
        yield found


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """For a server; what runs in it afterwards is stopped."""
    yield tmp_path / "data"
    if not (tmp_path / "data" / FOLDER).exists():
        return
    server = EmbeddedPostgres(tmp_path / "data" / FOLDER)
    if server.running:
        server.stop()
