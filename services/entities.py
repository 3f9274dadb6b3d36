"""Publish changes to entities: their aliases, their types, and which of them are one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from schemas.entities import MAX_ALIASES, EntityAmendment
from schemas.errors import InvalidRequest, unknown_resource_error
from schemas.events import EntityAmended, EntityMerged, EntityRetyped, EntitySplit
from schemas.ids import parse_uuid
from schemas.principals import Principal
from services.background_tasks import poll_until
from services.generations.decisions import PROJECTION_TIMEOUT_S
from services.publishing import EventPublisher
from sql.index.entities import PgEntities

CE_SOURCE = "anabranch/entities"
Details = dict[str, Any]


@dataclass(frozen=True, slots=True)
class EntityService:
    """Each call publishes a change, waits until stage `control` has projected it, and returns the
    entity with `status`. Raises NotFound, InvalidRequest, LogUnavailable.
    """

    publisher: EventPublisher
    tables: PgEntities
    projection_timeout_s: float = PROJECTION_TIMEOUT_S

    async def amend_entity(
        self, caller: Principal, entity_id: UUID, amendment: EntityAmendment
    ) -> Details:
        """Add and remove aliases, and set the type."""
        entity = await self._fetch_entity(caller, entity_id)
        entity_id = entity["id"]
        added, removed = amendment.add_aliases, amendment.remove_aliases
        sets_type = "type" in amendment.model_fields_set
        if not (added or removed or sets_type):
            raise InvalidRequest(
                "The request changes nothing.",
                code="NOTHING_TO_AMEND",
                remedy="Name an alias to add or to remove, or a type.",
            )
        _check_alias_count(entity, added)
        unknown = await self._find_removed(caller, entity_id, removed)
        if unknown:
            raise InvalidRequest(
                f"The entity {entity['name']!r} has no added or found alias {unknown[0]!r}.",
                code="UNKNOWN_ALIAS",
                remedy=(
                    "List its added and found aliases with GET /v1/entities/{id}. Its other names "
                    "stand in documents and cannot be removed."
                ),
            )
        # The type that documents state needs no correction.
        type_ = amendment.type if amendment.type != _get_stated_type(entity) else None
        events: list[EntityAmended | EntityRetyped] = []
        if added or removed:
            events.append(
                EntityAmended(
                    tenant=caller.tenant,
                    entity_id=entity_id,
                    add_aliases=added,
                    remove_aliases=removed,
                )
            )
        if sets_type:
            events.append(EntityRetyped(tenant=caller.tenant, entity_id=entity_id, type=type_))

        async def is_projected() -> bool:
            missing = await self.tables.find_unknown_aliases(
                caller.tenant, entity_id, added, with_found=False
            )
            return (
                not missing
                and await self._find_removed(caller, entity_id, removed) == removed
                and (not sets_type or await self._has_correction(caller, entity_id, "type", type_))
            )

        return await self._publish(caller, events, is_projected, entity_id)

    async def merge_entity(self, caller: Principal, entity_id: UUID, into: UUID) -> Details:
        """Make an entity part of another one, which is returned."""
        entity = await self._fetch_entity(caller, entity_id)
        whole = await self._fetch_entity(caller, into)
        entity_id, into = entity["id"], whole["id"]
        if entity_id == into:
            raise InvalidRequest(
                f"The entity {entity['name']!r} cannot be merged into itself.",
                code="SAME_ENTITY",
                remedy="Name two entities that are not parts of one already.",
            )
        event = EntityMerged(
            tenant=caller.tenant, entity_id=entity_id, into=into, into_type=_get_stated_type(whole)
        )
        is_projected = partial(self._has_correction, caller, entity_id, "parent_id", into)
        return await self._publish(caller, [event], is_projected, into)

    async def split_entity(self, caller: Principal, entity_id: UUID, part: str) -> Details:
        """Make a part of an entity one of its own again; it is returned."""
        entity = await self._fetch_entity(caller, entity_id)
        part_id = await self._find_part(caller, entity, part)
        event = EntitySplit(tenant=caller.tenant, entity_id=part_id)
        is_projected = partial(self._has_correction, caller, part_id, "parent_id", None)
        return await self._publish(caller, [event], is_projected, part_id)

    async def _find_part(self, caller: Principal, entity: Details, part: str) -> UUID:
        part_id = parse_uuid(part)
        if part_id is not None and part_id != entity["id"]:
            # Not among the parts: those are limited.
            whole = await self.tables.get_entity(caller, part_id)
            if whole is not None and whole["id"] == entity["id"]:
                return part_id
        named: list[UUID] = [
            one["id"]
            for one in entity["parts"]
            if one["id"] != entity["id"]
            and part.lower() in map(str.lower, (one["name"], *one["aliases"]))
        ]
        if len(named) > 1:
            raise InvalidRequest(
                f"Several parts of {entity['name']!r} have the name {part!r}: "
                f"{', '.join(map(str, named))}.",
                code="AMBIGUOUS_NAME",
                remedy="Use the id.",
            )
        if not named:
            raise InvalidRequest(
                f"No entity {part!r} was merged into {entity['name']!r}.",
                code="NOT_MERGED",
                remedy=(
                    "List the parts with GET /v1/entities/{id}. Spellings that differ only in "
                    "case, accents or punctuation are one entity; remove an added or found alias "
                    "with PATCH /v1/entities/{id}."
                ),
            )
        return named[0]

    async def _has_correction(
        self, caller: Principal, entity_id: UUID, field: str, value: object
    ) -> bool:
        correction = await self.tables.fetch_correction(caller.tenant, entity_id) or {}
        return correction.get(field) == value

    async def _publish(
        self,
        caller: Principal,
        events: Sequence[EntityAmended | EntityRetyped | EntityMerged | EntitySplit],
        is_projected: Callable[[], Awaitable[bool]],
        entity_id: UUID,
    ) -> Details:
        records = [
            await self.publisher.encode(
                event, CE_SOURCE, str(event.entity_id), tenant=caller.tenant
            )
            for event in events
        ]
        await self.publisher.log.append(records)
        is_applied = await poll_until(is_projected, self.projection_timeout_s)
        entity = await self._fetch_entity(caller, entity_id)
        return entity | {"status": "applied" if is_applied else "accepted"}

    async def _find_removed(
        self, caller: Principal, entity_id: UUID, aliases: Sequence[str]
    ) -> list[str]:
        return await self.tables.find_unknown_aliases(
            caller.tenant, entity_id, aliases, with_found=True
        )

    async def _fetch_entity(self, caller: Principal, entity_id: UUID) -> Details:
        entity = await self.tables.get_entity(caller, entity_id)
        if entity is None:
            raise unknown_resource_error(
                "entity", entity_id, "List entities with GET /v1/entities."
            )
        return entity


def _get_stated_type(entity: Details) -> str:
    """Return the type that documents state, or that it shows if only its parts are left."""
    own = next((one for one in entity["parts"] if one["id"] == entity["id"]), entity)
    return str(own["type"])


def _check_alias_count(entity: Details, added: Sequence[str]) -> None:
    count = len(entity["added_aliases"]) + len(added)
    if count > MAX_ALIASES:
        raise InvalidRequest(
            f"The entity {entity['name']!r} would have {count} added aliases.",
            code="TOO_MANY_ALIASES",
            remedy=f"Remove some first: at most {MAX_ALIASES} are allowed.",
        )
