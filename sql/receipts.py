"""Requests for erasure and their receipts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from schemas.rows import DestroyedRow, ErasureRow, ReceiptRow
from sql.errors import database_errors
from sql.keystore import DESTROY
from sql.pool import Connection, Pool

COLUMNS = "receipt_id, tenant, scope, name, requested_at, documents, removed, events, method, remains, raw_until, completed_at"


async def record_erasure(connection: Connection, row: ErasureRow | DestroyedRow | ReceiptRow) -> None:
    match row:
        case ErasureRow():
            query = "insert into erasures (receipt_id, tenant, scope, name, requested_at) values ($1, $2, $3, $4, $5) on conflict do nothing"
            await connection.execute(query, row.receipt_id, row.tenant, row.scope, row.name, row.requested_at)
        case DestroyedRow():
            await connection.execute(DESTROY, row.tenant, list(row.keys))
        case ReceiptRow():
            query = "update erasures set documents = $2, removed = $3, events = $4, method = $5, remains = $6, raw_until = $7, completed_at = $8 where receipt_id = $1"
            values = (row.documents, row.removed, row.events, row.method, list(row.remains), row.raw_until, row.completed_at)
            await connection.execute(query, row.receipt_id, *values)


class PgReceipts:
    """Receipts over the table `erasures`. Open ones have no `completed_at`."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def open(self, row: ErasureRow) -> None:
        with database_errors():
            async with self._pool.acquire() as connection:
                await record_erasure(connection, row)

    async def find(self, tenant: str, receipt_id: UUID) -> Mapping[str, Any] | None:
        with database_errors():
            found = await self._pool.fetchrow(f"select {COLUMNS} from erasures where tenant = $1 and receipt_id = $2", tenant, receipt_id)
        return dict(found) if found else None

    async def done(self, tenant: str) -> list[UUID]:
        with database_errors():
            rows = await self._pool.fetch("select receipt_id from erasures where tenant = $1 and completed_at is not null", tenant)
        return [row["receipt_id"] for row in rows]

    async def unknown(self, receipts: Sequence[UUID]) -> int:
        """How many of these no request is known of."""
        query = "select count(*) from unnest($1::uuid[]) r (id) where not exists (select from erasures where receipt_id = r.id)"
        with database_errors():
            return int(await self._pool.fetchval(query, list(receipts)))

    async def newest(self, tenant: str, limit: int) -> list[Mapping[str, Any]]:
        query = f"select {COLUMNS} from erasures where tenant = $1 order by requested_at desc, receipt_id limit $2"
        with database_errors():
            return [dict(row) for row in await self._pool.fetch(query, tenant, limit)]
