"""An API with callers that are limited to readers, over one worker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import httpx2
from fastapi import FastAPI

from anabranch.composition.api import prepare_api
from anabranch.composition.worker import prepare_worker
from anabranch.config.overrides import Overrides
from anabranch.config.settings import Settings
from api.app import create_app
from schemas.errors import Unauthenticated
from schemas.principals import Principal
from tests.support.api_world import wait_until_ready
from tests.support.eventually import eventually

READERS_BY_USER = {"admin": None, "ana": ("user:ana", "group:board"), "bob": ("user:bob",)}
"""A user without readers is an admin; `board` is an admin too, but limited."""
LIMITED_ADMIN = "board"
FOREIGN_ADMIN = "foreign"
"""Of another tenant."""
FINAL_STATES = {"searchable", "failed", "superseded", "withdrawn"}


@dataclass
class LimitedCallers:
    """Clients by user; each reads the whole tenant or what its readers allow."""

    clients: dict[str, httpx2.AsyncClient]
    app: FastAPI

    async def request(self, user: str, method: str, path: str, **body: Any) -> httpx2.Response:
        return await self.clients[user].request(method, path, **({"json": body} if body else {}))

    async def ingest(self, user: str, **body: Any) -> httpx2.Response:
        return await self.request(user, "POST", "/v1/ingest", **body)

    async def amend(self, user: str, document: str, **fields: Any) -> httpx2.Response:
        return await self.request(user, "PATCH", f"/v1/documents/{document}", **fields)

    async def withdraw(self, user: str, document: str) -> httpx2.Response:
        return await self.request(user, "DELETE", f"/v1/documents/{document}")

    async def fetch(self, user: str, document: str, part: str = "") -> httpx2.Response:
        return await self.request(user, "GET", f"/v1/documents/{document}{part}")

    async def wait_until_final(self, response: httpx2.Response) -> str:
        """Wait for the job of an accepted request, as the admin sees it; return its state."""
        assert response.status_code == 202, response.text
        path = f"/v1/ingest/status/{response.json()['ingestion_job_id']}"

        async def fetch_state() -> str:
            return str((await self.request("admin", "GET", path)).json().get("state"))

        return str(await eventually(fetch_state, lambda state: state in FINAL_STATES))

    async def wait_until_erased(self, response: httpx2.Response) -> None:
        path = f"/v1/erasures/{response.json()['receipt_id']}"

        async def fetch_state() -> str:
            return str((await self.request("admin", "GET", path)).json().get("state"))

        await eventually(fetch_state, lambda state: state == "done", what="the erasure")


async def _authenticate(credential: str | None, tenant: str | None) -> Principal:
    user = credential or ""
    if user == FOREIGN_ADMIN:
        return Principal(f"key:{user}", "other", "admin")
    if user == LIMITED_ADMIN:
        return Principal(f"key:{user}", "default", "admin", ("group:board",))
    if user not in READERS_BY_USER:
        raise Unauthenticated("No user has this credential.")
    readers = READERS_BY_USER[user]
    return Principal(f"key:{user}", "default", "admin" if readers is None else "writer", readers)


@asynccontextmanager
async def open_limited_callers(
    settings: Settings, dsn: str, overrides: Overrides
) -> AsyncIterator[LimitedCallers]:
    database = settings.database.model_copy(update={"worker_pool": 5, "api_pool": 4})
    settings = settings.model_copy(update={"database": database})
    async with prepare_worker(settings, dsn, overrides=overrides) as worker:
        working = asyncio.create_task(worker.run())
        try:
            async with prepare_api(settings, dsn, overrides=overrides) as services:
                app = create_app(replace(services, authenticate=_authenticate))
                clients = {
                    user: httpx2.AsyncClient(
                        transport=httpx2.ASGITransport(app, raise_app_exceptions=False),
                        base_url="http://localhost",
                        headers={"Authorization": f"Bearer {user}"},
                        timeout=60,
                    )
                    for user in (*READERS_BY_USER, LIMITED_ADMIN, FOREIGN_ADMIN)
                }
                await wait_until_ready(clients["admin"])
                yield LimitedCallers(clients, app)
                for client in clients.values():
                    await client.aclose()
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
