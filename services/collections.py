"""List collections, configure them, and request their deletion."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

from schemas.errors import InvalidRequest, unknown_resource_error
from schemas.events import CollectionConfigured, CollectionDeletionRequested
from schemas.ids import content_id
from schemas.principals import Principal
from schemas.questions import SearchRequest
from services.publishing import EventPublisher
from sql.catalog.collections import PgCollections

SETTINGS = ("default_profile", "chunking", "chunk", "extract")
CE_SOURCE = "anabranch/api"
RequestT = TypeVar("RequestT", bound=SearchRequest)


@dataclass(frozen=True, slots=True)
class CollectionService:
    tables: PgCollections
    publisher: EventPublisher
    check_profile: Callable[[str], object]
    """Raises InvalidRequest for an unknown workflow profile."""
    get_chunk_sizes: Callable[[str], Mapping[str, Any]]
    """Returns the settings of a chunking profile. Raises InvalidRequest if it is unknown."""

    async def list_collections(self, caller: Principal) -> list[dict[str, Any]]:
        return [_format(row) for row in await self.tables.list_collections(caller)]

    async def get_collection(self, caller: Principal, name: str) -> dict[str, Any]:
        """Raise NotFound for a collection without readable documents, profile and deletion."""
        rows = await self.tables.list_collections(caller, name)
        if not rows:
            raise unknown_resource_error(
                "collection", repr(name), "List collections with GET /v1/collections."
            )
        return _format(rows[0])

    async def configure(
        self, caller: Principal, name: str, changes: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Set or, with None, unset `default_profile`, `chunking` and `extract`; the others stay.

        The collection need not have documents yet.
        """
        async with self.tables.lock(f"settings of collection {name!r} of {caller.tenant}"):
            rows = await self.tables.list_collections(caller, name)
            settings = {field: rows[0][field] if rows else None for field in SETTINGS}
            settings |= changes
            if profile := changes.get("default_profile"):
                self.check_profile(profile)
            # Recorded as they are now: a later change of the profile's file changes no collection.
            if "chunking" in changes:
                chunking = settings["chunking"]
                settings["chunk"] = self.get_chunk_sizes(chunking) if chunking is not None else None
            decision = CollectionConfigured.model_validate(
                {"tenant": caller.tenant, "collection": name, **settings}
            )
            offset = await self.publisher.publish(decision, CE_SOURCE, name, tenant=caller.tenant)
            await self.tables.write(decision, offset)
            rows = await self.tables.list_collections(caller, name)
            # Without documents, profile and deletion, nothing is left to list.
            return _format(rows[0] if rows else {"name": name})

    async def delete_collection(self, caller: Principal, name: str) -> UUID:
        """Request a deletion and return its id.

        If nothing is left to delete, return the id of the latest deletion, or raise NotFound.
        """
        if not await self.tables.fetch_deletable(caller.tenant, name, None):
            collection = await self.get_collection(caller, name)
            deletion = collection["deletion"]
            is_unset = all(collection[field] is None for field in SETTINGS)
            if is_unset and deletion is not None and deletion["state"] == "done":
                return UUID(str(deletion["deletion_id"]))
        request = CollectionDeletionRequested(
            deletion_id=self.publisher.fresh_id(),
            tenant=caller.tenant,
            collection=name,
            requested_at=self.publisher.clock(),
        )
        event_id = content_id("event", "collection.deletion", request.deletion_id)
        offset = await self.publisher.publish(request, CE_SOURCE, name, event_id, caller.tenant)
        await self.tables.write(request, offset)
        return request.deletion_id

    async def apply_default_profile(self, caller: Principal, request: RequestT) -> RequestT:
        """Return the request with the default profile of the collections in its filters.

        A profile that the request names wins, and collections with different defaults have none
        in common. Raises InvalidRequest if the default profile no longer exists.
        """
        names = set(request.filters.collections)
        if not names or "profile" in request.model_fields_set:
            return request
        profiles = await self.tables.fetch_default_profiles(caller, sorted(names))
        if len(profiles) < len(names) or len(set(profiles.values())) != 1:
            return request
        name, profile = next(iter(profiles.items()))
        try:
            self.check_profile(profile)
        except InvalidRequest as error:
            raise InvalidRequest(
                f"Collection {name!r} has the default profile {profile!r}, which does not exist.",
                code=error.code,
                remedy="Name a profile in the request, or give the collection another one. List "
                "profiles with GET /v1/profiles.",
            ) from error
        return request.model_copy(update={"profile": profile})


def _format(row: dict[str, Any]) -> dict[str, Any]:
    deletion = row.get("deletion_id") and {
        "deletion_id": row["deletion_id"],
        "state": "done" if row["completed_at"] else "running",
        "requested_at": row["requested_at"],
        "completed_at": row["completed_at"],
    }
    return {
        "name": row["name"],
        "documents": row.get("documents", 0),
        "chunks": row.get("chunks", 0),
        "languages": row.get("languages", []),
        **{field: row.get(field) for field in SETTINGS},
        "deletion": deletion,
    }
