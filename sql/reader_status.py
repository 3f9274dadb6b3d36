"""Store which readers are stalled and why. See `schemas.ports.reader_status`."""

from __future__ import annotations

from schemas.errors import AnabranchError
from schemas.ports.reader_status import Pause
from sql.errors import translate_database_errors
from sql.pool import Pool
from sql.query_loader import load_query

STATUS_TTL_S = 60.0
"""A status expires this long after its renewal, since a killed process cannot clear it."""


class PgReaderStatus:
    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def set_paused(
        self, reader: str, topic: str, partition: int, reason: AnabranchError
    ) -> None:
        with translate_database_errors():
            await self._pool.execute(
                load_query("upsert_reader_status"),
                reader,
                topic,
                partition,
                reason.code,
                reason.detail,
                reason.remedy,
                STATUS_TTL_S,
            )

    async def clear_paused(self, reader: str, topic: str, partition: int) -> None:
        with translate_database_errors():
            await self._pool.execute(
                load_query("delete_reader_status"),
                reader,
                topic,
                partition,
            )

    async def list_current(self) -> list[Pause]:
        """Return statuses that have not expired."""
        with translate_database_errors():
            return [
                Pause(**dict(row))
                for row in await self._pool.fetch(load_query("reader_status"), STATUS_TTL_S)
            ]
