"""Chunks are loaded while channels still search."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import pytest

from retrieval.ranking.passages import open_chunk_loader
from schemas.errors import DatabaseUnavailable
from schemas.ports.search import ChunkView, Hit, LexicalHits
from tests.support.channels import DEFAULT_CHANNELS
from tests.support.eventually import eventually
from tests.unit.retrieval_harness import make_harness
from tests.unit.retrieval_memory_index import MemoryIndex


async def test_chunks_load_while_other_channels_search(monkeypatch: pytest.MonkeyPatch) -> None:
    built = make_harness()
    lexical = built.index.search_lexical

    async def slow(*args: Any, **options: Any) -> LexicalHits:
        await eventually(lambda: built.index.chunk_reads)
        return await lexical(*args, **options)

    monkeypatch.setattr(built.index, "search_lexical", slow)
    async with asyncio.timeout(60):
        response = await built.search(mode="hybrid")
    assert response.trace.channels_used == DEFAULT_CHANNELS


async def test_database_outage_during_chunk_load_fails_query(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    built = make_harness()
    built.index.channel_errors = {"chunks": DatabaseUnavailable("away")}
    lexical = built.index.search_lexical

    async def slow(*args: Any, **options: Any) -> LexicalHits:
        await eventually(lambda: built.index.call_counts["chunks"])
        return await lexical(*args, **options)

    monkeypatch.setattr(built.index, "search_lexical", slow)
    before = asyncio.all_tasks()
    async with asyncio.timeout(60):
        with pytest.raises(DatabaseUnavailable):
            await built.search()
    assert asyncio.all_tasks() == before


async def test_chunk_loading_is_cancelled_when_query_ends() -> None:
    read, ended = asyncio.Event(), asyncio.Event()

    class Endless(MemoryIndex):
        async def fetch_chunks(
            self, chunk_ids: Sequence[UUID], question: str
        ) -> Mapping[UUID, ChunkView]:
            read.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()
            return {}

    async with asyncio.timeout(60):
        async with open_chunk_loader(Endless(), "") as views:
            views.load_hits([Hit(UUID(int=1), UUID(int=2), 1.0)])
            await read.wait()
    assert ended.is_set()
