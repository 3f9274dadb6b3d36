"""Publish changes to the aliases of entities."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from schemas.entities import MAX_ALIASES, EntityAmendment
from schemas.errors import InvalidRequest, unknown_resource_error
from schemas.events import EntityAmended
from schemas.ports.log import RecordAppender
from schemas.principals import Principal
from schemas.topics import CONTROL
from services.generations.decisions import PROJECTION_TIMEOUT_S, wait_until_projected
from streams.codec import Codec
from streams.publisher import build_root_event

CE_SOURCE = "anabranch/entities"


class EntityTables(Protocol):
    async def get_entity(self, caller: Principal, entity_id: UUID) -> dict[str, Any] | None: ...

    async def find_unknown_aliases(
        self, tenant: str, entity_id: UUID, aliases: Sequence[str], *, with_found: bool
    ) -> list[str]:
        """Return the aliases that the entity does not have, or no longer has, from people or, with
        `with_found`, from documents.
        """


@dataclass(frozen=True, slots=True)
class EntityService:
    log: RecordAppender
    codec: Codec
    tables: EntityTables
    clock: Callable[[], datetime]
    fresh_id: Callable[[], UUID]
    projection_timeout_s: float = PROJECTION_TIMEOUT_S

    async def amend_entity(
        self, caller: Principal, entity_id: UUID, amendment: EntityAmendment
    ) -> dict[str, Any]:
        """Publish the change, wait until stage `control` has projected it, and return the entity.

        Raises NotFound, InvalidRequest (no change, unknown or too many aliases), LogUnavailable.
        """
        entity = await self._fetch_entity(caller, entity_id)
        added, removed = amendment.add_aliases, amendment.remove_aliases
        self._check_counts(entity, amendment)
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
        event = build_root_event(
            EntityAmended(
                tenant=caller.tenant,
                entity_id=entity_id,
                add_aliases=added,
                remove_aliases=removed,
            ),
            self.fresh_id(),
            CE_SOURCE,
            self.clock,
            tenant=caller.tenant,
        )
        await self.log.append([await self.codec.encode(event, CONTROL, str(entity_id))])

        async def is_projected() -> bool:
            missing = await self.tables.find_unknown_aliases(
                caller.tenant, entity_id, added, with_found=False
            )
            return not missing and await self._find_removed(caller, entity_id, removed) == removed

        is_applied = await wait_until_projected(is_projected, timeout_s=self.projection_timeout_s)
        entity = await self._fetch_entity(caller, entity_id)
        return entity | {"status": "applied" if is_applied else "accepted"}

    async def _find_removed(
        self, caller: Principal, entity_id: UUID, aliases: Sequence[str]
    ) -> list[str]:
        return await self.tables.find_unknown_aliases(
            caller.tenant, entity_id, aliases, with_found=True
        )

    async def _fetch_entity(self, caller: Principal, entity_id: UUID) -> dict[str, Any]:
        entity = await self.tables.get_entity(caller, entity_id)
        if entity is None:
            raise unknown_resource_error(
                "entity", entity_id, "List entities with GET /v1/entities."
            )
        return entity

    def _check_counts(self, entity: dict[str, Any], amendment: EntityAmendment) -> None:
        if not (amendment.add_aliases or amendment.remove_aliases):
            raise InvalidRequest(
                "The request changes nothing.",
                code="NOTHING_TO_AMEND",
                remedy="Name an alias to add or to remove.",
            )
        count = len(entity["added_aliases"]) + len(amendment.add_aliases)
        if count > MAX_ALIASES:
            raise InvalidRequest(
                f"The entity {entity['name']!r} would have {count} added aliases.",
                code="TOO_MANY_ALIASES",
                remedy=f"Remove some first: at most {MAX_ALIASES} are allowed.",
            )
