"""Search by graph, from the query's entities along visible relations to the chunks that mention
them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

import asyncpg

from schemas.graph_facts import GraphEvidence
from schemas.ports.search import EntityAlias, EntityGraph, EntitySeed, GraphEdge, Hit
from schemas.principals import ReaderScope
from sql.index.search_scope import SearchScope
from sql.pool import Connection
from sql.query_loader import load_query

MAX_SAMPLED_MENTIONS = 2_000
"""Mentions of an entity by which its most frequent spelling is chosen. Not a setting: the spelling
hardly depends on it.
"""
MAX_SIMILAR_KEYS = 1_000
"""Most names to compare with a name of the question. Not a setting: bounds the cost of a query that
reads the index of names.
"""
MAX_MENTION_EDGES = 20_000
"""Edges from entities to chunks to read for a random walk. Not a setting: bounds the cost of a
query, and of the walk, which passes over them some 30 times.
"""
MAX_SEED_RELATIONS, MAX_NEIGHBOR_RELATIONS = 100, 5
"""Relations to read per direction of a named entity and of its neighbors. Not a setting: bounds the
cost of a query, whose lines `graph.facts` limits.
"""


async def link_entities(
    connection: Connection, generation: str, tenant: str, keys: Sequence[str], readers: ReaderScope
) -> list[EntitySeed]:
    if not keys:
        return []
    rows = await connection.fetch(
        load_query("link_entities"), generation, tenant, list(keys), readers
    )
    return [EntitySeed(row["type"], row["key"], row["weight"]) for row in rows]


async def find_aliases(
    connection: Connection,
    generation: str,
    tenant: str,
    keys: Sequence[str],
    readers: ReaderScope,
    documents: Sequence[UUID] | None = None,
) -> list[EntityAlias]:
    rows = await connection.fetch(
        load_query("aliases_in_question"),
        generation,
        tenant,
        list(keys),
        readers,
        MAX_SAMPLED_MENTIONS,
        documents,
    )
    return [_to_alias(row) for row in rows]


async def find_similar_names(
    connection: Connection,
    generation: str,
    tenant: str,
    names: Sequence[str],
    readers: ReaderScope,
    is_similar: Callable[[str, str], bool],
) -> list[EntityAlias]:
    keys = await connection.fetch(
        load_query("similar_keys"), generation, tenant, list(names), MAX_SIMILAR_KEYS, readers
    )
    pairs = [(row["name"], row["key"]) for row in keys if is_similar(row["name"], row["key"])]
    if not pairs:
        return []
    rows = await connection.fetch(
        load_query("similar_entities"),
        generation,
        tenant,
        [name for name, _ in pairs],
        readers,
        MAX_SAMPLED_MENTIONS,
        [key for _, key in pairs],
    )
    return [_to_alias(row) for row in rows]


def _to_alias(row: asyncpg.Record) -> EntityAlias:
    names = ("key", "alias", "entity_key", "type", "name", "is_written", "kind")
    return EntityAlias(*(row[name] for name in names))


async def expand_seeds(
    connection: Connection,
    scope: SearchScope,
    seeds: Sequence[EntitySeed],
    *,
    hops: int,
    min_hops: int,
    fan_out: int,
    decay: float,
    max_mentions: int,
    k: int,
) -> list[Hit]:
    if scope.is_empty or not seeds:
        return []
    rows = await connection.fetch(
        load_query("graph"),
        *scope.to_parameters(),
        max_mentions,
        k,
        *_to_seed_columns(seeds),
        hops,
        fan_out,
        decay,
        min_hops,
    )
    return [Hit(row["chunk_id"], row["document_id"], row["score"]) for row in rows]


async def fetch_entity_graph(
    connection: Connection,
    scope: SearchScope,
    seeds: Sequence[EntitySeed],
    *,
    hops: int,
    fan_out: int,
    max_mentions: int,
) -> EntityGraph:
    if scope.is_empty or not seeds:
        return EntityGraph({}, ())
    rows = await connection.fetch(
        load_query("entity_graph"),
        *scope.to_parameters(),
        max_mentions,
        MAX_MENTION_EDGES,
        *_to_seed_columns(seeds),
        hops,
        fan_out,
    )
    names = ("entity_id", "node_id", "document_id", "weight")
    return EntityGraph(
        {row["entity_id"]: row["weight"] for row in rows if row["kind"] == "seed"},
        [GraphEdge(*(row[name] for name in names)) for row in rows if row["kind"] != "seed"],
    )


def _to_seed_columns(seeds: Sequence[EntitySeed]) -> list[list[Any]]:
    return [
        [seed.type for seed in seeds],
        [seed.key for seed in seeds],
        [seed.weight for seed in seeds],
    ]


async def search_nodes(
    connection: Connection,
    scope: SearchScope,
    entities: Mapping[UUID, float],
    chunks: Mapping[UUID, float],
    max_mentions: int,
    k: int,
) -> list[Hit]:
    if scope.is_empty or not (entities or chunks):
        return []
    node_columns = [list(entities), list(entities.values()), list(chunks), list(chunks.values())]
    rows = await connection.fetch(
        load_query("graph_nodes"), *scope.to_parameters(), max_mentions, k, *node_columns
    )
    return [Hit(row["chunk_id"], row["document_id"], row["score"]) for row in rows]


async def find_graph_evidence(
    connection: Connection,
    scope: SearchScope,
    seeds: Sequence[EntitySeed],
    *,
    hops: int,
    fan_out: int,
    found: Sequence[UUID],
    limit: int,
) -> list[GraphEvidence]:
    if scope.is_empty or not seeds:
        return []
    numbers = {key: n for n, key in enumerate(dict.fromkeys(seed.key for seed in seeds))}
    rows = await connection.fetch(
        load_query("graph_evidence"),
        *scope.to_parameters(),
        [seed.type for seed in seeds],
        [seed.key for seed in seeds],
        hops,
        fan_out,
        MAX_SEED_RELATIONS,
        list(found),
        limit,
        MAX_NEIGHBOR_RELATIONS,
    )
    names = ("kind", "hop", "predicate", "weight", "subject_id", "object_id", "document_id")
    return [
        GraphEvidence(
            **{name: row[name] for name in (*names, "parent_id", "chunk_id")},
            subject_seed=numbers.get(row["subject_key"]),
            object_seed=numbers.get(row["object_key"]),
            subject_span=(row["subject_start"], row["subject_end"]),
            object_span=(row["object_start"], row["object_end"]),
            char_start=row["char_start"],
            char_end=row["char_end"],
        )
        for row in rows
    ]
