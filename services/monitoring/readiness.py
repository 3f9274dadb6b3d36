"""Readiness and health of the API: each dependency is checked on its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from engines.disk import DiskReserve
from schemas.errors import AnabranchError, NoSpace
from schemas.principals import Principal
from schemas.readiness import DependencyStatus
from schemas.topics import RAW
from services.query.retriever_pool import RetrieverPool
from services.storage import Storage
from sql.catalog.documents import PgDocuments
from sql.catalog.listings import PgListings
from sql.index.generations import PgGenerations, no_live_generation_error

CHECK_TIMEOUT_S = 5.0
PROBE_KEY = "uploads/_probe"
DEAD_LETTERS_PATH = "/v1/dead-letters"


@dataclass(frozen=True, slots=True)
class ReadinessService:
    storage: Storage
    retrievers: RetrieverPool
    disk: DiskReserve
    log_kind: str
    version: str

    async def check_all(self) -> Sequence[DependencyStatus]:
        checks = {
            "database": self._check_database,
            "log": self._check_log,
            "blobs": self._check_blobs,
            "generation": self._check_generation,
        }
        results = await asyncio.gather(*(_run_check(name, check) for name, check in checks.items()))
        free = self.disk.get_free_bytes()
        # A full disk only stops uploads, so it never makes the API unready.
        disk = (
            DependencyStatus("disk", True, self.disk.format_shortage(free), NoSpace.remedy)
            if free < self.disk.reserve_bytes
            else DependencyStatus("disk", True, f"{free / 2**30:.1f} GiB free")
        )
        return [*results, disk]

    async def summarize_health(self, caller: Principal) -> dict[str, Any]:
        """Summarize the dependencies, with counts of the tenant for callers that are not limited to
        readers.
        """
        lines = await self.check_all()
        live = await PgGenerations(self.storage.pool).fetch_live()
        is_unlimited = caller.readers is None
        dead_letters = (
            await PgListings(self.storage.pool).count_dead_letters(caller.tenant)
            if is_unlimited
            else {}
        )
        return {
            "status": "ok" if all(line.ok for line in lines) else "degraded",
            "version": self.version,
            "log": self.log_kind,
            "generation": live.name if live else None,
            "documents": await PgDocuments(self.storage.pool).fetch_counts(caller.tenant)
            if is_unlimited
            else {},
            "dead_letters": {
                "total": sum(dead_letters.values()),
                "stages": dead_letters,
                "list": DEAD_LETTERS_PATH,
            },
            "dependencies": {line.name: line.ok for line in lines},
        }

    async def _check_database(self) -> str:
        await PgGenerations(self.storage.pool).fetch_undropped()
        return "answers"

    async def _check_log(self) -> str:
        partitions = len(await self.storage.log.fetch_offset_bounds(RAW))
        return f"{self.log_kind}, topic {RAW} in {partitions} partition{'s' * (partitions > 1)}"

    async def _check_blobs(self) -> str:
        # A missing blob is an answer too.
        await self.storage.blobs.get_size(PROBE_KEY)
        return "answers"

    async def _check_generation(self) -> str:
        live = await PgGenerations(self.storage.pool).fetch_live()
        if live is None:
            raise no_live_generation_error()
        # Prepares the retriever if necessary, so that a ready server can answer.
        async with self.retrievers.acquire(None) as (name, _):
            return name


async def _run_check(name: str, check: Callable[[], Awaitable[str]]) -> DependencyStatus:
    try:
        async with asyncio.timeout(CHECK_TIMEOUT_S):
            return DependencyStatus(name, True, await check())
    except AnabranchError as error:
        return DependencyStatus(name, False, error.detail, error.remedy)
    except TimeoutError:
        return DependencyStatus(
            name, False, f"No response within {CHECK_TIMEOUT_S:.0f} s.", "Run `anabranch doctor`."
        )
