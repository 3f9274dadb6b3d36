"""Readers that stand still: see `schemas.ports.pauses`."""

from __future__ import annotations

from schemas.errors import AnabranchError
from schemas.ports.pauses import Pause
from sql.errors import database_errors
from sql.pool import Pool
from sql.statements import statement

HOLDS_S = 60.0
"""For so long after it was renewed: a process that was killed renews nothing."""


class PgPauses:
    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def note(self, reader: str, topic: str, partition: int, reason: AnabranchError) -> None:
        with database_errors():
            await self._pool.execute(statement("note_pause"), reader, topic, partition, reason.code, reason.detail, reason.remedy, HOLDS_S)

    async def forget(self, reader: str, topic: str, partition: int) -> None:
        with database_errors():
            await self._pool.execute("delete from reader_pauses where reader = $1 and topic = $2 and partition = $3", reader, topic, partition)

    async def all(self) -> list[Pause]:
        """Those that hold."""
        with database_errors():
            return [Pause(**dict(row)) for row in await self._pool.fetch(statement("pauses"), HOLDS_S)]
