"""Store erasure requests and their receipts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from schemas.rows import ErasureReceiptRow, ErasureRequestRow, KeysDestroyedRow
from sql.errors import translate_database_errors
from sql.pool import Connection, Pool
from sql.query_loader import load_query


async def write_erasure_row(
    connection: Connection, row: ErasureRequestRow | KeysDestroyedRow | ErasureReceiptRow
) -> None:
    match row:
        case ErasureRequestRow():
            await connection.execute(
                load_query("insert_erasure"),
                row.receipt_id,
                row.tenant,
                row.scope,
                row.name,
                row.requested_at,
            )
        case KeysDestroyedRow():
            await connection.execute(load_query("destroy_keys"), row.tenant, list(row.keys))
        case ErasureReceiptRow():
            values = (
                row.documents,
                row.removed,
                row.events,
                row.method,
                list(row.remains),
                row.raw_until,
                row.completed_at,
            )
            await connection.execute(load_query("complete_erasure"), row.receipt_id, *values)


class PgErasureReceipts:
    """Receipts in the table `erasures`. An open one has no `completed_at`."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def open(self, row: ErasureRequestRow) -> None:
        with translate_database_errors():
            async with self._pool.acquire() as connection:
                await write_erasure_row(connection, row)

    async def find(self, tenant: str, receipt_id: UUID) -> Mapping[str, Any] | None:
        with translate_database_errors():
            row = await self._pool.fetchrow(
                load_query("find_erasure"),
                tenant,
                receipt_id,
            )
        return dict(row) if row else None

    async def list_completed(self, tenant: str) -> list[UUID]:
        with translate_database_errors():
            rows = await self._pool.fetch(
                load_query("completed_erasures"),
                tenant,
            )
        return [row["receipt_id"] for row in rows]

    async def count_unknown(self, receipts: Sequence[UUID]) -> int:
        """Return how many of these receipts are unknown."""
        with translate_database_errors():
            return int(
                await self._pool.fetchval(load_query("count_unknown_erasures"), list(receipts))
            )

    async def list_newest(self, tenant: str, limit: int) -> list[Mapping[str, Any]]:
        with translate_database_errors():
            return [
                dict(row)
                for row in await self._pool.fetch(load_query("newest_erasures"), tenant, limit)
            ]
