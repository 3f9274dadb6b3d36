"""List collections, set their default profiles, and request their deletion."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from schemas.errors import InvalidRequest, NotFound, unknown_resource_error
from schemas.events import CollectionConfigured, CollectionDeletionRequested, EventData
from schemas.ids import content_id
from schemas.principals import Principal
from schemas.questions import SearchRequest
from schemas.topics import CONTROL
from services.storage import Storage
from sql.catalog.collections import PgCollections
from streams.publisher import build_root_event

CE_SOURCE = "anabranch/api"
RequestT = TypeVar("RequestT", bound=SearchRequest)


@dataclass(frozen=True, slots=True)
class CollectionService:
    storage: Storage
    check_profile: Callable[[str], object]
    """Raises InvalidRequest for an unknown workflow profile."""
    clock: Callable[[], datetime]
    fresh_id: Callable[[], UUID]

    async def list_collections(self, caller: Principal) -> list[dict[str, Any]]:
        return [_format(row) for row in await self._tables.list_collections(caller)]

    async def get_collection(self, caller: Principal, name: str) -> dict[str, Any]:
        """Raise NotFound for a collection without readable documents, profile and deletion."""
        rows = await self._tables.list_collections(caller, name)
        if not rows:
            raise _build_unknown_error(name)
        return _format(rows[0])

    async def set_default_profile(
        self, caller: Principal, name: str, profile: str | None
    ) -> dict[str, Any]:
        """Set or, with None, unset the default profile. The collection need not have documents
        yet.
        """
        if profile is not None:
            self.check_profile(profile)
        decision = CollectionConfigured(
            tenant=caller.tenant, collection=name, default_profile=profile
        )
        offset = await self._publish(decision, self.fresh_id(), name)
        await self._tables.write(decision, offset)
        rows = await self._tables.list_collections(caller, name)
        # Without documents, profile and deletion, nothing is left to list.
        return _format(rows[0] if rows else {"name": name})

    async def delete_collection(self, caller: Principal, name: str) -> UUID:
        """Request a deletion and return its id.

        If nothing is left to delete, return the id of the latest deletion, or raise NotFound.
        """
        if not await self._tables.fetch_deletable(caller.tenant, name, None):
            collection = await self.get_collection(caller, name)
            deletion = collection["deletion"]
            if (
                collection["default_profile"] is None
                and deletion is not None
                and deletion["state"] == "done"
            ):
                return UUID(str(deletion["deletion_id"]))
        request = CollectionDeletionRequested(
            deletion_id=self.fresh_id(),
            tenant=caller.tenant,
            collection=name,
            requested_at=self.clock(),
        )
        deletion_id = request.deletion_id
        offset = await self._publish(
            request, content_id("event", "collection.deletion", deletion_id), name
        )
        await self._tables.write(request, offset)
        return deletion_id

    async def apply_default_profile(self, caller: Principal, request: RequestT) -> RequestT:
        """Return the request with the default profile of the collections in its filters.

        A profile that the request names wins, and collections with different defaults have none
        in common. Raises InvalidRequest if the default profile no longer exists.
        """
        names = set(request.filters.collections)
        if not names or "profile" in request.model_fields_set:
            return request
        profiles = await self._tables.fetch_default_profiles(caller, sorted(names))
        if len(profiles) < len(names) or len(set(profiles.values())) != 1:
            return request
        name, profile = next(iter(profiles.items()))
        try:
            self.check_profile(profile)
        except InvalidRequest as error:
            raise InvalidRequest(
                f"Collection {name!r} has the default profile {profile!r}, which does not exist.",
                code=error.code,
                remedy=(
                    "Name a profile in the request, or give the collection another one. List "
                    "profiles with GET /v1/profiles."
                ),
            ) from error
        return request.model_copy(update={"profile": profile})

    @property
    def _tables(self) -> PgCollections:
        return PgCollections(self.storage.pool)

    async def _publish(self, decision: EventData, event_id: UUID, collection: str) -> int:
        event = build_root_event(
            decision, event_id, CE_SOURCE, self.clock, tenant=getattr(decision, "tenant", None)
        )
        [position] = await self.storage.log.append(
            [await self.storage.codec.encode(event, CONTROL, collection)]
        )
        return position.offset


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
        "default_profile": row.get("default_profile"),
        "deletion": deletion,
    }


def _build_unknown_error(name: str) -> NotFound:
    return unknown_resource_error(
        "collection", repr(name), "List collections with GET /v1/collections."
    )
