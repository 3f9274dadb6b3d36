"""Chunks are read as channels bring them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import pytest

from retrieval.views import reading
from schemas.errors import DatabaseUnavailable
from schemas.ports.search import ChunkView, Hit, LexicalHits
from schemas.questions import SearchRequest
from tests.callers import LOCAL
from tests.unit.retrieval_corpus import house
from tests.unit.retrieval_index import MemoryIndex

RUN = UUID(int=7)
COST = "How much does the replacement of the bearing cost?"


async def test_what_one_channel_found_is_read_while_another_still_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    built = house()
    lexical = built.index.lexical

    async def slow(*args: Any, **options: Any) -> LexicalHits:
        while not built.index.read:
            await asyncio.sleep(0)
        return await lexical(*args, **options)

    monkeypatch.setattr(built.index, "lexical", slow)
    async with asyncio.timeout(10):
        response = await built.retriever().search(LOCAL, SearchRequest(query=COST), RUN)
    assert response.trace.channels_used == ["lexical", "semantic", "graph"]


async def test_a_database_that_goes_away_while_chunks_are_read_ends_the_question(monkeypatch: pytest.MonkeyPatch) -> None:
    built = house()
    built.index.broken = {"chunks": DatabaseUnavailable("away")}
    lexical = built.index.lexical

    async def slow(*args: Any, **options: Any) -> LexicalHits:
        while not built.index.asked["chunks"]:
            await asyncio.sleep(0)
        return await lexical(*args, **options)

    monkeypatch.setattr(built.index, "lexical", slow)
    before = asyncio.all_tasks()
    async with asyncio.timeout(10):
        with pytest.raises(DatabaseUnavailable):
            await built.retriever().search(LOCAL, SearchRequest(query=COST), RUN)
    assert asyncio.all_tasks() == before


async def test_nothing_is_read_any_longer_when_the_question_has_ended() -> None:
    read, ended = asyncio.Event(), asyncio.Event()

    class Endless(MemoryIndex):
        async def chunks(self, ids: Sequence[UUID]) -> Mapping[UUID, ChunkView]:
            read.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()
            return {}

    async with asyncio.timeout(10):
        async with reading(Endless()) as views:
            views.begin([Hit(UUID(int=1), UUID(int=2), 1.0)])
            await read.wait()
    assert ended.is_set()
