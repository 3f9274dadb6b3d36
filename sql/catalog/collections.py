"""Collections: their documents, default profiles and deletions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from schemas.events import CollectionConfigured, CollectionDeleted, CollectionDeletionRequested
from schemas.generations import CollectionProcessing
from schemas.principals import Principal
from sql.database import Connection, PgStore, load_query, read_values, replace_nul

CollectionEvent = CollectionConfigured | CollectionDeletionRequested | CollectionDeleted


async def write_collection_event(
    connection: Connection, data: CollectionEvent, offset: int
) -> None:
    match data:
        case CollectionConfigured():
            await _upsert_settings(connection, data, offset)
        case CollectionDeletionRequested():
            values = read_values(data, "deletion_id", "tenant", "collection", "requested_at")
            await connection.execute(load_query("insert_collection_deletion"), *values)
            unset = CollectionConfigured(tenant=data.tenant, collection=data.collection)
            await _upsert_settings(connection, unset, offset)
        case CollectionDeleted():
            await connection.execute(
                load_query("complete_collection_deletion"), data.deletion_id, data.completed_at
            )


async def _upsert_settings(connection: Connection, data: CollectionConfigured, offset: int) -> None:
    await connection.execute(
        load_query("upsert_collection_profile"),
        data.tenant,
        replace_nul(data.collection),
        replace_nul(data.default_profile),
        replace_nul(data.chunking),
        *(part and part.model_dump(mode="json") for part in (data.chunk, data.extract)),
        offset,
    )


class PgCollections(PgStore):
    """Collections over Postgres. Every method may raise DatabaseUnavailable."""

    async def list_collections(
        self, caller: Principal, name: str | None = None
    ) -> list[dict[str, Any]]:
        """Return collections with their searchable documents.

        Documents without a collection come last, under null.
        """
        return await self._fetch_bodies(
            "collections", caller.tenant, caller.readers, replace_nul(name)
        )

    async def fetch_default_profiles(
        self, caller: Principal, names: Sequence[str]
    ) -> dict[str, str]:
        """Return collection → default profile, for collections that have one and that the caller
        may know.
        """
        return await self._fetch_pairs(
            "default_profiles", caller.tenant, [replace_nul(name) for name in names], caller.readers
        )

    async def fetch_processing(self, tenant: str, collection: str) -> CollectionProcessing:
        row = await self._fetch_row("collection_processing", tenant, replace_nul(collection))
        return CollectionProcessing.model_validate(dict(row) if row else {})

    async def fetch_deletable(
        self, tenant: str, collection: str, received_until: datetime | None
    ) -> dict[UUID, list[int]]:
        """Return document → latest order, for documents that are not withdrawn.

        With a time, only what the log had received by then.
        """
        return await self._fetch_pairs(
            "deletable_documents", tenant, replace_nul(collection), received_until
        )

    async def is_deleted(self, deletion_id: UUID) -> bool:
        return bool(await self._fetch_value("is_collection_deleted", deletion_id))

    async def write(self, data: CollectionEvent, offset: int) -> None:
        """Write the rows that stage `control` will write when it consumes the event."""
        async with self._transaction() as connection:
            await write_collection_event(connection, data, offset)
