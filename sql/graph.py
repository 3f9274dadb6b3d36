"""The graph channel: from the entities that a question names, along visible relations, to the chunks that mention what was reached."""

from __future__ import annotations

from collections.abc import Sequence

from schemas.ports.search import Hit, Seed
from schemas.principals import Readers
from sql.pool import Connection
from sql.scope import Scope
from sql.statements import statement

MENTIONS = 2_000
"""Of one entity that are looked at: a name on every page says little about any."""


async def link(connection: Connection, generation: str, tenant: str, keys: Sequence[str], names: Readers) -> list[Seed]:
    if not keys:
        return []
    rows = await connection.fetch(statement("link"), generation, tenant, list(keys), names)
    return [Seed(row["type"], row["key"], row["weight"]) for row in rows]


async def expand(connection: Connection, scope: Scope, seeds: Sequence[Seed], *, hops: int, fan_out: int, decay: float, k: int) -> list[Hit]:
    if scope.empty or not seeds:
        return []
    named = [[seed.type for seed in seeds], [seed.key for seed in seeds], [seed.weight for seed in seeds]]
    rows = await connection.fetch(statement("graph"), *scope.parameters(), *named, hops, fan_out, decay, MENTIONS, k)
    return [Hit(row["chunk_id"], row["document_id"], row["score"]) for row in rows]
