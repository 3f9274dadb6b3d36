"""Collections: their documents, default profiles and deletions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from schemas.principals import Principal
from schemas.rows import CollectionDeletedRow, CollectionDeletionRow, CollectionProfileRow
from sql.encoding import replace_nul
from sql.errors import translate_database_errors
from sql.pool import Connection, Pool, fetch_rows, fetch_value
from sql.query_loader import load_query

CollectionRow = CollectionProfileRow | CollectionDeletionRow | CollectionDeletedRow


async def write_collection_row(connection: Connection, row: CollectionRow) -> None:
    match row:
        case CollectionProfileRow():
            await connection.execute(
                load_query("upsert_collection_profile"),
                row.tenant,
                replace_nul(row.collection),
                replace_nul(row.default_profile),
                row.decided_at,
            )
        case CollectionDeletionRow():
            await connection.execute(
                load_query("insert_collection_deletion"),
                row.deletion_id,
                row.tenant,
                replace_nul(row.collection),
                row.requested_at,
            )
        case CollectionDeletedRow():
            await connection.execute(
                load_query("complete_collection_deletion"), row.deletion_id, row.completed_at
            )


class PgCollections:
    """Collections over Postgres. Every method may raise DatabaseUnavailable."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def list_collections(
        self, caller: Principal, name: str | None = None
    ) -> list[dict[str, Any]]:
        """Return collections with their searchable documents.

        Documents without a collection come last, under null.
        """
        rows = await fetch_rows(
            self._pool, "collections", caller.tenant, caller.readers, replace_nul(name)
        )
        return [dict(row) for row in rows]

    async def fetch_default_profiles(
        self, caller: Principal, names: Sequence[str]
    ) -> dict[str, str]:
        """Return collection → default profile, for collections that have one and that the caller
        may know.
        """
        rows = await fetch_rows(
            self._pool,
            "default_profiles",
            caller.tenant,
            [replace_nul(name) for name in names],
            caller.readers,
        )
        return {row["collection"]: row["default_profile"] for row in rows}

    async def fetch_deletable(
        self, tenant: str, collection: str, received_until: datetime | None
    ) -> dict[UUID, list[int]]:
        """Return document → latest order, for documents that are not withdrawn.

        With a time, only what the log had received by then.
        """
        rows = await fetch_rows(
            self._pool, "deletable_documents", tenant, replace_nul(collection), received_until
        )
        return {row["id"]: row["latest"] for row in rows}

    async def is_deleted(self, deletion_id: UUID) -> bool:
        return bool(await fetch_value(self._pool, "is_collection_deleted", deletion_id))

    async def write(self, rows: Sequence[CollectionRow]) -> None:
        """Write the rows that stage `control` will write when it consumes their event."""
        with translate_database_errors():
            async with self._pool.acquire() as connection, connection.transaction():
                for row in rows:
                    await write_collection_row(connection, row)
