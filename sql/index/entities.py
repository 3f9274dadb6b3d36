"""Read entities, relations and claims of the live generation, and correct entities."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from schemas.events import EntityAmended, EntityMerged, EntityRetyped, EntitySplit
from schemas.principals import Principal
from sql.database import Connection, PgStore, load_query
from sql.invalidation import ALL_GENERATIONS, record_index_change
from sql.page_cursor import ListOrder, PageOrder

Body = dict[str, Any]
MAX_RELATED = 100
"""Most found aliases, mentions, relations and claims to return for one entity."""
MAX_NAMESAKES = 10
ENTITY_ORDER = ListOrder(
    {"mentions": ("e.mentions", "bigint"), "name": ("e.name", "text"), "type": ("e.type", "text")},
    "mentions:desc",
)
FIRST_PAGE = ENTITY_ORDER.parse(None, None)


async def write_aliases(connection: Connection, data: EntityAmended, offset: int) -> None:
    for is_removed, aliases in ((False, data.add_aliases), (True, data.remove_aliases)):
        for alias in aliases:
            await connection.execute(
                load_query("upsert_entity_alias"),
                data.tenant,
                data.entity_id,
                alias,
                is_removed,
                offset,
            )
    # Cached answers were linked without them.
    await record_index_change(connection, ALL_GENERATIONS, [data.tenant])


class PgEntities(PgStore):
    """Entities over Postgres. Every method may raise DatabaseUnavailable.

    An entity exists only through its visible mentions.
    """

    async def list_entities(
        self,
        caller: Principal,
        *,
        text: str | None,
        kind: str | None,
        sort: str | None = None,
        after: str | None,
        limit: int,
    ) -> tuple[list[Body], str | None]:
        """Return a page of entities, in `ENTITY_ORDER`, and the next cursor.

        Raises InvalidRequest for an unknown order, and if `after` is not a cursor of it.
        """
        order = ENTITY_ORDER.parse(sort, after)
        rows = await self._fetch_entities(caller, order, limit + 1, text=text, kind=kind)
        page, next_cursor = order.split_page(rows, limit, "id")
        return [_to_entity_body(row) for row in page], next_cursor

    async def get_entity(self, caller: Principal, entity_id: UUID) -> Body | None:
        """Return an entity with at most 100 each of its parts, found aliases, mentions, relations
        and claims. The id of a merged entity returns the one that it is part of.
        """
        rows = await self._fetch_entities(caller, FIRST_PAGE, 1, entity_id=entity_id)
        if not rows:
            return None
        entity_id = rows[0]["id"]
        edges = await self._fetch_edges(caller, [entity_id], MAX_RELATED)
        nodes = await self._fetch_nodes(caller, _collect_endpoints(edges))
        return _to_entity_body(rows[0]) | {
            "parts": await self._fetch_related("entity_parts", caller, entity_id),
            "found_aliases": await self._fetch_related("entity_found_aliases", caller, entity_id),
            "occurrences": await self._fetch_related("entity_mentions", caller, entity_id),
            "relations": [
                edge
                | {
                    "subject": nodes[edge["subject_id"]]["name"],
                    "object": nodes[edge["object_id"]]["name"],
                }
                for edge in edges
                if edge["subject_id"] in nodes and edge["object_id"] in nodes
            ],
            "claims": await self._fetch_related("entity_claims", caller, entity_id),
        }

    async def find_by_name(self, caller: Principal, name: str, kind: str | None) -> list[Body]:
        """Return the entities with this name or alias whatever its case, most mentioned first.

        Entities that bear the name go before those that only have it as an alias.
        """
        rows = await self._fetch_entities(caller, FIRST_PAGE, MAX_NAMESAKES, kind=kind, name=name)
        bodies = [_to_entity_body(row) for row in rows]
        return [body for body in bodies if body["name"].lower() == name.lower()] or bodies

    async def _fetch_entities(
        self, caller: Principal, order: PageOrder, limit: int, **filters: Any
    ) -> list[Body]:
        """Fetch entities by `entity_id`, `text`, `kind` and `name`, as far as they are given."""
        entity_id, *texts = map(filters.get, ("entity_id", "text", "kind"))
        page = (order.last_value, order.last_id, limit)
        return await self._fetch_bodies(
            "entities",
            *(caller.tenant, entity_id, caller.readers, *texts, *page, filters.get("name")),
            **order.substitutions,
        )

    async def _fetch_related(self, query: str, caller: Principal, entity_id: UUID) -> list[Body]:
        return await self._fetch_bodies(
            query, caller.tenant, entity_id, MAX_RELATED, caller.readers
        )

    async def find_unknown_aliases(
        self, tenant: str, entity_id: UUID, aliases: Sequence[str], *, with_found: bool
    ) -> list[str]:
        """Return the aliases that the entity does not have, or no longer has, from people or, with
        `with_found`, from documents.
        """
        return await self._fetch_column(
            "unknown_aliases", tenant, entity_id, list(aliases), with_found
        )

    async def fetch_correction(self, tenant: str, entity_id: UUID) -> Body | None:
        """Return `type` and `parent_id` as people have decided them."""
        row = await self._fetch_row("entity_correction", tenant, entity_id)
        return dict(row) if row else None

    async def get_subgraph(
        self, caller: Principal, seeds: Sequence[UUID], *, hops: int, limit: int
    ) -> Body:
        """Return nodes and edges within `hops`, at most `limit` edges per hop, heaviest first."""
        merged = await self._fetch("merged_ids", caller.tenant, list(seeds))
        wholes = {row["entity_id"]: row["root_id"] for row in merged}
        visited = dict.fromkeys(wholes.get(seed, seed) for seed in seeds)
        edges = dict[tuple[UUID, str, UUID], Body]()
        frontier = list(visited)
        for _ in range(hops):
            hop_edges = await self._fetch_edges(caller, frontier, limit)
            edges |= {
                (edge["subject_id"], edge["type"], edge["object_id"]): edge for edge in hop_edges
            }
            # Only entities that are new: cycles would otherwise be walked at every hop.
            frontier = [end for end in _collect_endpoints(hop_edges) if end not in visited]
            visited |= dict.fromkeys(frontier)
        # Entities without a mention that the caller may read are missing here; their edges are
        # dropped.
        nodes = await self._fetch_nodes(caller, visited)
        return {
            "nodes": list(nodes.values()),
            "edges": [
                edge
                for edge in edges.values()
                if edge["subject_id"] in nodes and edge["object_id"] in nodes
            ],
        }

    async def _fetch_edges(
        self, caller: Principal, entities: Sequence[UUID], limit: int
    ) -> list[Body]:
        return (
            await self._fetch_bodies(
                "entity_relations", caller.tenant, list(entities), limit, caller.readers
            )
            if entities
            else []
        )

    async def _fetch_nodes(self, caller: Principal, entities: Iterable[UUID]) -> dict[UUID, Body]:
        return {
            row["id"]: dict(row)
            for row in await self._fetch(
                "entities_by_id", caller.tenant, list(entities), caller.readers
            )
        }


def _to_entity_body(row: Body) -> Body:
    return {
        "id": row["id"],
        "type": row["type"],
        "name": row["name"],
        # Merged entities may share a spelling.
        "aliases": [name for name in dict.fromkeys(row["names"]) if name != row["name"]],
        "added_aliases": row["added_aliases"],
        "mentions": row["mentions"],
    }


def _collect_endpoints(edges: Iterable[Body]) -> list[UUID]:
    return list(
        dict.fromkeys(end for edge in edges for end in (edge["subject_id"], edge["object_id"]))
    )


# Apply corrections of entities: the types that people gave them, and those that they merged.
# Mentions, relations and claims are stored under the corrected entity, together with the one that
# documents write. Rows that arrive later are corrected when they are inserted.


async def write_correction(
    connection: Connection, data: EntityRetyped | EntityMerged | EntitySplit, offset: int
) -> None:
    """Store a correction and apply it to the rows of all generations. Earlier decisions are
    ignored.

    Blocks until transactions that insert rows of the tenant have ended, and those that begin
    meanwhile.
    """
    entity = (data.tenant, data.entity_id)
    await connection.execute(load_query("lock_for_entity_correction"), data.tenant)
    match data:
        case EntityRetyped(type=entity_type):
            await connection.execute(load_query("retype_entity"), *entity, entity_type, offset)
        # An entity cannot be part of itself.
        case EntityMerged(into=into, into_type=into_type) if into != data.entity_id:
            await connection.execute(load_query("merge_entity"), *entity, into, into_type, offset)
        case EntitySplit():
            await connection.execute(load_query("merge_entity"), *entity, None, None, offset)
        case _:
            return
    await _apply_corrections(connection, data.tenant)


async def erase_corrections(
    connection: Connection,
    tenant: str,
    entities: Sequence[UUID] | None = None,
    before_offset: int | None = None,
) -> None:
    """Delete corrections, of all entities of the tenant by default, that were decided before an
    offset of topic `control`. Rows that are left return to the entities that documents write.
    """
    scope = (tenant, None if entities is None else list(entities), before_offset)
    await connection.execute(load_query("lock_for_entity_correction"), tenant)
    await connection.execute(load_query("reset_corrections"), *scope)
    await _apply_corrections(connection, tenant)
    await connection.execute(load_query("delete_corrections"), *scope)


async def _apply_corrections(connection: Connection, tenant: str) -> None:
    changed = await connection.fetch(load_query("derive_entity_corrections"), tenant)
    for row in changed:
        scope = (tenant, row["entity_id"], row["previous_root_id"], row["root_id"])
        await connection.execute(load_query("correct_mentions"), *scope, row["entity_type"])
        if row["root_id"] != row["previous_root_id"]:
            await connection.execute(load_query("correct_relations"), *scope)
            await connection.execute(load_query("correct_claims"), *scope)
    if changed:
        # Cached answers were linked by the entities before.
        await record_index_change(connection, ALL_GENERATIONS, [tenant])
