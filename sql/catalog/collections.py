"""Collections: their documents, default profiles and deletions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from schemas.events import CollectionConfigured, CollectionDeleted, CollectionDeletionRequested
from schemas.principals import Principal
from sql.encoding import read_values, replace_nul
from sql.errors import translate_database_errors
from sql.pool import Connection, Pool, fetch_rows, fetch_value
from sql.query_loader import load_query

CollectionEvent = CollectionConfigured | CollectionDeletionRequested | CollectionDeleted


async def write_collection_event(
    connection: Connection, data: CollectionEvent, offset: int
) -> None:
    match data:
        case CollectionConfigured():
            await _upsert_profile(connection, data, data.default_profile, offset)
        case CollectionDeletionRequested():
            values = read_values(data, "deletion_id", "tenant", "collection", "requested_at")
            await connection.execute(load_query("insert_collection_deletion"), *values)
            await _upsert_profile(connection, data, None, offset)
        case CollectionDeleted():
            await connection.execute(
                load_query("complete_collection_deletion"), data.deletion_id, data.completed_at
            )


async def _upsert_profile(
    connection: Connection,
    data: CollectionConfigured | CollectionDeletionRequested,
    profile: str | None,
    offset: int,
) -> None:
    await connection.execute(
        load_query("upsert_collection_profile"),
        data.tenant,
        replace_nul(data.collection),
        replace_nul(profile),
        offset,
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

    async def write(self, data: CollectionEvent, offset: int) -> None:
        """Write the rows that stage `control` will write when it consumes the event."""
        with translate_database_errors():
            async with self._pool.acquire() as connection, connection.transaction():
                await write_collection_event(connection, data, offset)
