"""Store erasure requests and their receipts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from schemas.rows import ErasureReceiptRow, ErasureRequestRow, KeysDestroyedRow
from sql.errors import translate_database_errors
from sql.keystore import DESTROY_KEYS
from sql.pool import Connection, Pool

COLUMNS = "receipt_id, tenant, scope, name, requested_at, documents, removed, events, method, remains, raw_until, completed_at"


async def write_erasure_row(
    connection: Connection, row: ErasureRequestRow | KeysDestroyedRow | ErasureReceiptRow
) -> None:
    match row:
        case ErasureRequestRow():
            query = "insert into erasures (receipt_id, tenant, scope, name, requested_at) values ($1, $2, $3, $4, $5) on conflict do nothing"
            await connection.execute(
                query, row.receipt_id, row.tenant, row.scope, row.name, row.requested_at
            )
        case KeysDestroyedRow():
            await connection.execute(DESTROY_KEYS, row.tenant, list(row.keys))
        case ErasureReceiptRow():
            query = "update erasures set documents = $2, removed = $3, events = $4, method = $5, remains = $6, raw_until = $7, completed_at = $8 where receipt_id = $1"
            values = (
                row.documents,
                row.removed,
                row.events,
                row.method,
                list(row.remains),
                row.raw_until,
                row.completed_at,
            )
            await connection.execute(query, row.receipt_id, *values)


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
                f"select {COLUMNS} from erasures where tenant = $1 and receipt_id = $2",
                tenant,
                receipt_id,
            )
        return dict(row) if row else None

    async def list_completed(self, tenant: str) -> list[UUID]:
        with translate_database_errors():
            rows = await self._pool.fetch(
                "select receipt_id from erasures where tenant = $1 and completed_at is not null",
                tenant,
            )
        return [row["receipt_id"] for row in rows]

    async def count_unknown(self, receipts: Sequence[UUID]) -> int:
        """Return how many of these receipts are unknown."""
        query = "select count(*) from unnest($1::uuid[]) r (id) where not exists (select from erasures where receipt_id = r.id)"
        with translate_database_errors():
            return int(await self._pool.fetchval(query, list(receipts)))

    async def list_newest(self, tenant: str, limit: int) -> list[Mapping[str, Any]]:
        query = f"select {COLUMNS} from erasures where tenant = $1 order by requested_at desc, receipt_id limit $2"
        with translate_database_errors():
            return [dict(row) for row in await self._pool.fetch(query, tenant, limit)]
