"""Entities of the live generation: what documents name, and what connects it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

import asyncpg

from schemas.principals import Principal
from sql.cursor import read_count_cursor
from sql.errors import database_errors
from sql.pool import Pool
from sql.statements import statement

Body = dict[str, Any]
SHOWN = 100
"""Mentions, relations and claims of one entity at most."""


class PgEntities:
    """An entity without a visible mention does not exist. Every call may raise DatabaseUnavailable."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def find(self, caller: Principal, *, text: str | None, kind: str | None, after: str | None, limit: int) -> tuple[list[Body], str | None]:
        """The most mentioned first. Raises InvalidRequest for an `after` that is not ours."""
        mentions, last = read_count_cursor(after)
        rows = await self._fetch("entities", caller.tenant, None, caller.readers, text, kind, mentions, last, limit + 1)
        page = rows[:limit]
        following = f"{page[-1]['mentions']}_{page[-1]['id']}" if len(rows) > limit else None
        return [_entity(row) for row in page], following

    async def get(self, caller: Principal, entity_id: UUID) -> Body | None:
        """With its mentions, relations and claims, at most 100 of each."""
        rows = await self._fetch("entities", caller.tenant, entity_id, caller.readers, None, None, None, None, 1)
        if not rows:
            return None
        edges = await self._edges(caller, [entity_id], SHOWN)
        nodes = await self._nodes(caller, _ends(edges))
        return _entity(rows[0]) | {
            "occurrences": [dict(row) for row in await self._fetch("entity_mentions", caller.tenant, entity_id, SHOWN, caller.readers)],
            "relations": [_told(edge, nodes) for edge in edges if edge["subject_id"] in nodes and edge["object_id"] in nodes],
            "claims": [dict(row) for row in await self._fetch("entity_claims", caller.tenant, entity_id, SHOWN, caller.readers)],
        }

    async def subgraph(self, caller: Principal, seeds: Sequence[UUID], *, hops: int, limit: int) -> Body:
        """Nodes and edges at most `hops` away, the heaviest edges first; at most `limit` edges a hop."""
        reached, edges = dict.fromkeys(seeds), dict[tuple[UUID, str, UUID], Body]()
        frontier = list(reached)
        for _ in range(hops):
            found = await self._edges(caller, frontier, limit)
            edges |= {(edge["subject_id"], edge["type"], edge["object_id"]): edge for edge in found}
            frontier = [end for end in _ends(found) if end not in reached]
            reached |= dict.fromkeys(frontier)
        nodes = await self._nodes(caller, reached)
        return {
            "nodes": list(nodes.values()),
            "edges": [edge for edge in edges.values() if edge["subject_id"] in nodes and edge["object_id"] in nodes],
        }

    async def _edges(self, caller: Principal, entities: Sequence[UUID], limit: int) -> list[Body]:
        return [dict(row) for row in await self._fetch("entity_relations", caller.tenant, list(entities), limit, caller.readers)] if entities else []

    async def _nodes(self, caller: Principal, entities: Iterable[UUID]) -> dict[UUID, Body]:
        return {row["id"]: dict(row) for row in await self._fetch("entities_by_id", caller.tenant, list(entities), caller.readers)}

    async def _fetch(self, name: str, *parameters: Any) -> list[asyncpg.Record]:
        with database_errors():
            return list(await self._pool.fetch(statement(name), *parameters))


def _entity(row: asyncpg.Record) -> Body:
    return {
        "id": row["id"],
        "type": row["type"],
        "name": row["name"],
        "aliases": [name for name in row["names"] if name != row["name"]],
        "mentions": row["mentions"],
    }


def _told(edge: Body, nodes: dict[UUID, Body]) -> Body:
    return edge | {"subject": nodes[edge["subject_id"]]["name"], "object": nodes[edge["object_id"]]["name"]}


def _ends(edges: Iterable[Body]) -> list[UUID]:
    return list(dict.fromkeys(end for edge in edges for end in (edge["subject_id"], edge["object_id"])))
