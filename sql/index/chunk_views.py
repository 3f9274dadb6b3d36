"""Fetch chunks and convert their rows to the views of the search port."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from uuid import UUID

import asyncpg

from schemas.ports.search import ChildStates, ChunkView, EntitySeed, ParentView, RankingFacts
from schemas.principals import ReaderScope
from sql.pool import Connection
from sql.query_loader import load_query

ENTRY_PATTERN = re.compile(r"(?<!\S)'((?:[^'\\]|''|\\\\)*+)':([\d,ABCD]+)")


async def fetch_chunks(
    connection: Connection,
    generation: str,
    ids: Sequence[UUID],
    question: str,
    readers: ReaderScope,
) -> dict[UUID, ChunkView]:
    rows = await connection.fetch(
        load_query("chunks"), generation, list(ids), None, readers, question
    )
    return {row["id"]: to_chunk_view(row) for row in rows}


async def fetch_children(
    connection: Connection, generation: str, parent_ids: Sequence[UUID], readers: ReaderScope
) -> list[ChunkView]:
    rows = await connection.fetch(
        load_query("chunks"), generation, None, list(parent_ids), readers, None
    )
    return [to_chunk_view(row) for row in rows]


async def fetch_child_states(
    connection: Connection, generation: str, parent_ids: Sequence[UUID], readers: ReaderScope
) -> list[ChildStates]:
    rows = await connection.fetch(load_query("child_states"), generation, list(parent_ids), readers)
    return [
        ChildStates(row["id"], row["parent_id"], _get_states(row), row["background_maxsim"] or 0.0)
        for row in rows
    ]


async def fetch_parents(
    connection: Connection, generation: str, ids: Sequence[UUID], readers: ReaderScope
) -> dict[UUID, ParentView]:
    rows = await connection.fetch(load_query("parents"), generation, list(ids), readers)
    return {row["id"]: to_parent_view(row) for row in rows}


async def fetch_ranking_facts(
    connection: Connection,
    generation: str,
    tenant: str,
    chunk_ids: Sequence[UUID],
    seeds: Sequence[EntitySeed],
    readers: ReaderScope,
    *,
    hops: int,
    fan_out: int,
) -> dict[UUID, RankingFacts]:
    rows = await connection.fetch(
        load_query("ranking_facts"),
        generation,
        tenant,
        list(chunk_ids),
        readers,
        [seed.type for seed in seeds],
        [seed.key for seed in seeds],
        hops,
        fan_out,
    )
    return {
        row["chunk_id"]: RankingFacts(
            row["document_date"],
            (
                *row["tags"],
                *([row["collection"]] if row["collection"] else []),
                *(value for value in row["metadata"].values() if isinstance(value, str)),
            ),
            frozenset(row["seed_keys"]),
            row["hop"],
            frozenset(row["relation_types"]),
        )
        for row in rows
    }


def to_chunk_view(row: asyncpg.Record) -> ChunkView:
    return ChunkView(
        chunk_id=row["id"],
        parent_id=row["parent_id"],
        document_id=row["document_id"],
        order=tuple(row["ord"]),
        revision=row["revision"],
        external_id=row["external_id"],
        title=row["title"],
        source_uri=row["source_uri"],
        language=row["language"],
        kind=row["kind"],
        text=row["text"],
        prefix=row["prefix"],
        char_start=row["char_start"],
        char_end=row["char_end"],
        spans=row["spans"],
        ordinal=row["ordinal"],
        positions=LexemePositions(row["words"]) if row["words"] else {},
        states=_get_states(row),
    )


def _get_states(row: asyncpg.Record) -> tuple[str, int, int] | None:
    if row["blob_key"] is None:
        return None
    return row["blob_key"], row["blob_offset"], row["blob_length"]


def to_parent_view(row: asyncpg.Record) -> ParentView:
    return ParentView(
        parent_id=row["id"],
        document_id=row["document_id"],
        text=row["text"],
        section=row["section"],
        char_start=row["char_start"],
        char_end=row["char_end"],
        pages=row["pages"],
        tokens=row["tokens"],
        ordinal=row["ordinal"],
        warning_codes=row["warning_codes"],
    )


class LexemePositions(Mapping[str, Sequence[int]]):
    """Lexeme → positions, which are parsed lazily: a frequent lexeme has dozens in each chunk."""

    __slots__ = ("_printed",)

    def __init__(self, words: str) -> None:
        self._printed = {
            lexeme.replace("''", "'").replace("\\\\", "\\"): positions
            for lexeme, positions in ENTRY_PATTERN.findall(words)
        }

    def __getitem__(self, lexeme: str) -> Sequence[int]:
        return _parse_positions(self._printed[lexeme])

    def __contains__(self, lexeme: object) -> bool:
        return lexeme in self._printed

    def __iter__(self) -> Iterator[str]:
        return iter(self._printed)

    def __len__(self) -> int:
        return len(self._printed)


def _parse_positions(printed: str) -> list[int]:
    numbers = printed.split(",")
    try:
        return list(map(int, numbers))
    except ValueError:
        # Only positions with weights, such as `3A`, need the slower way.
        return [int(number.rstrip("ABCD")) for number in numbers]
