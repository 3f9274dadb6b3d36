"""Run worker and API in this process over a database of the test's own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2

from anabranch.composition.api import prepare_api
from anabranch.composition.worker import Worker, prepare_worker
from anabranch.config.overrides import Overrides
from anabranch.config.settings import Settings
from processors import STAGES
from tests.support.api_client import api_client
from tests.support.eventually import eventually

STAGES_OF_A_DOCUMENT = {stage.name for stage in STAGES if not stage.serves_all_generations}
FINAL_STATES = {"searchable", "failed", "superseded", "withdrawn"}
TIMEOUT_S = 90


@dataclass
class ApiWorld:
    """An API behind `http` and a running worker."""

    http: httpx2.AsyncClient
    worker: Worker
    settings: Settings

    async def fetch_json(self, path: str, **parameters: Any) -> Any:
        """Return the JSON of an answer, None unless its status is 200."""
        response = await self.http.get(path, params=parameters)
        return response.json() if response.status_code == 200 else None

    async def ingest(
        self, body: bytes | str, filename: str = "note.md", **fields: Any
    ) -> dict[str, Any]:
        content = body.encode() if isinstance(body, str) else body
        response = await self.http.post(
            "/v1/ingest", files={"file": (filename, content)}, data=fields
        )
        assert response.status_code == 202, response.text
        return dict(response.json())

    async def wait_until_final(self, receipt: dict[str, Any]) -> dict[str, Any]:
        """Wait for a final state of a job and return its status."""
        return await eventually(
            lambda: self._fetch_status(receipt),
            lambda status: status.get("state") in FINAL_STATES,
            what=f"a final state of {receipt}",
        )

    async def wait_until_all_stages_done(self, receipt: dict[str, Any]) -> dict[str, Any]:
        """Wait until all stages of a job are done, the graph's too, and return its status."""
        return await eventually(
            lambda: self._fetch_status(receipt),
            # A stage that has not begun has no line yet.
            lambda status: (
                {line["stage"] for line in status.get("stages", ()) if line["state"] == "done"}
                >= STAGES_OF_A_DOCUMENT
            ),
            what=f"all stages of {receipt}",
        )

    async def _fetch_status(self, receipt: dict[str, Any]) -> dict[str, Any]:
        """Return the status of a job, empty before the job is known."""
        return await self.fetch_json(f"/v1/ingest/status/{receipt['ingestion_job_id']}") or {}

    async def ingest_until_searchable(
        self, body: bytes | str, filename: str = "note.md", **fields: Any
    ) -> dict[str, Any]:
        receipt = await self.ingest(body, filename, **fields)
        status = await self.wait_until_final(receipt)
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
async def run_system(settings: Settings, dsn: str, overrides: Overrides) -> AsyncIterator[ApiWorld]:
    # A connection costs 40 ms of CPU, and a test has little to do at once.
    database = settings.database.model_copy(update={"worker_pool": 5, "api_pool": 4})
    settings = settings.model_copy(update={"database": database})
    async with prepare_worker(settings, dsn, overrides=overrides) as worker:
        working = asyncio.create_task(worker.run())
        try:
            async with (
                prepare_api(settings, dsn, overrides=overrides) as services,
                api_client(services) as http,
            ):
                await wait_until_ready(http)
                yield ApiWorld(http, worker, settings)
            if working.done():
                working.result()
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)


async def wait_until_ready(http: httpx2.AsyncClient) -> None:
    async def fetch_readiness() -> tuple[int, str]:
        response = await http.get("/readyz")
        return response.status_code, response.text

    await eventually(fetch_readiness, lambda answer: answer[0] == 200, what="a ready API")
