"""What the API needs, each by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from anabranch.composition.storage import Storage, disk_reserve
from anabranch.desk.answering import Answering
from anabranch.settings import Settings
from anabranch.version import program_version
from api.services import Dependency
from engines.disk import MIB
from schemas.errors import AnabranchError, NoSpace, NotFound
from schemas.principals import Principal
from sql.documents import PgDocuments
from sql.generations import PgGenerations
from sql.records import PgRecords
from streams.topics import RAW

PATIENCE_S = 5.0
PROBE = "uploads/_probe"
DEAD_LETTERS = "/v1/dead-letters"


@dataclass(frozen=True, slots=True)
class Readiness:
    settings: Settings
    storage: Storage
    answering: Answering

    async def lines(self) -> Sequence[Dependency]:
        checks = {"database": self._database, "log": self._log, "blobs": self._blobs, "generation": self._generation}
        found = await asyncio.gather(*(_checked(name, check) for name, check in checks.items()))
        return [*found, self._disk()]

    def _disk(self) -> Dependency:
        """A full disk ends uploads only: what is there still answers questions."""
        reserve = disk_reserve(self.settings)
        free = reserve.free_bytes()
        if free < reserve.reserve_bytes:
            return Dependency("disk", True, reserve.shortage(free), NoSpace.remedy)
        return Dependency("disk", True, f"{free // MIB} MiB free")

    async def health(self, caller: Principal) -> dict[str, Any]:
        """Counts are of the whole tenant, and not for callers that are limited to readers."""
        lines = await self.lines()
        live = await PgGenerations(self.storage.pool).live()
        whole = caller.readers is None
        buried = await PgRecords(self.storage.pool).dead_letter_counts(caller.tenant) if whole else {}
        return {
            "status": "ok" if all(line.ok for line in lines) else "degraded",
            "version": program_version(),
            "log": self.settings.log_kind,
            "generation": live.name if live else None,
            "documents": await PgDocuments(self.storage.pool).counts(caller.tenant) if whole else {},
            "dead_letters": {"total": sum(buried.values()), "stages": buried, "list": DEAD_LETTERS},
            "dependencies": {line.name: line.ok for line in lines},
        }

    async def _database(self) -> str:
        await PgGenerations(self.storage.pool).undropped()
        return "answers"

    async def _log(self) -> str:
        partitions = len(await self.storage.log.ends(RAW))
        return f"{self.settings.log_kind}, {partitions} partitions of {RAW}"

    async def _blobs(self) -> str:
        await self.storage.blobs.size(PROBE)
        return "answers"

    async def _generation(self) -> str:
        live = await PgGenerations(self.storage.pool).live()
        if live is None:
            raise NotFound("no generation is live yet", remedy="Start a worker: it makes the first one.")
        async with self.answering.asked(None) as (name, _):
            return name


async def _checked(name: str, check: Callable[[], Awaitable[str]]) -> Dependency:
    try:
        async with asyncio.timeout(PATIENCE_S):
            return Dependency(name, True, await check())
    except AnabranchError as error:
        return Dependency(name, False, error.detail, error.remedy)
    except TimeoutError:
        return Dependency(name, False, f"no answer within {PATIENCE_S:.0f} s", "`anabranch doctor` looks closer.")
