"""A query sees one snapshot despite concurrent writes and returns its connections."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from schemas.errors import ConfigurationError, DatabaseUnavailable, NotFound, TransientError
from schemas.ports.search import GraphWalk
from schemas.questions import Filters
from sql.database import close_pool, open_pool
from sql.index.search import PgSearch
from tests.support.document_rows import (
    SampleDocument,
    activate_revision,
    insert_documents,
    insert_generation,
    insert_mention,
)
from tests.support.search_stack import SearchStack, open_search_stack

NO_FILTERS = Filters()
OLD_REVISION = SampleDocument(
    "d",
    ["heron stork", "crane"],
    vectors=[[1, 0, 0, 0], [0, 1, 0, 0]],
    title="Birds",
    prefix="Birds > Wading",
)
NEW_REVISION = SampleDocument(
    "d", ["heron eagle"], vectors=[[1, 0, 0, 0]], order=(1, 2), revision=2
)
QUERY_VECTOR = np.array([1, 0, 0, 0], dtype=np.float32)


async def is_pool_idle(stack: SearchStack) -> bool:
    """Return whether all connections are in the pool and outside transactions."""
    states = await stack.connection.fetch(
        "select state from pg_stat_activity where application_name = 'search' "
        "and datname = current_database()"
    )
    return stack.pool.get_idle_size() == stack.pool.get_size() and all(
        row["state"] == "idle" for row in states
    )


async def test_every_retriever_sees_one_snapshot_during_writes(stack: SearchStack) -> None:
    await insert_documents(stack.connection, OLD_REVISION)
    await insert_mention(stack.connection, OLD_REVISION, 0, "bird", "heron")
    async with stack.search.open_snapshot() as snapshot:
        await insert_documents(stack.connection, NEW_REVISION)
        lexical, semantic, seeds, size = await asyncio.gather(
            snapshot.search_lexical(
                "default", "heron", language="en", filters=NO_FILTERS, k=5, budget=100
            ),
            snapshot.search_semantic("default", QUERY_VECTOR, filters=NO_FILTERS, k=5),
            snapshot.link_entities("default", ["heron"]),
            snapshot.count_chunks("default"),
        )
        assert [hit.chunk_id for hit in lexical.hits] == [OLD_REVISION.chunk_id(0)]
        assert [hit.chunk_id for hit in semantic] == [
            OLD_REVISION.chunk_id(0),
            OLD_REVISION.chunk_id(1),
        ]
        assert [seed.key for seed in seeds] == ["heron"] and size == 2
        assert [
            hit.chunk_id
            for hit in await snapshot.search_graph(
                "default", seeds, GraphWalk(2, 5), filters=NO_FILTERS, k=5
            )
        ] == [OLD_REVISION.chunk_id(0)]
        assert set(
            await snapshot.fetch_chunks([OLD_REVISION.chunk_id(0), NEW_REVISION.chunk_id(0)], "")
        ) == {OLD_REVISION.chunk_id(0)}
    async with stack.search.open_snapshot() as snapshot:
        assert await snapshot.count_chunks("default") == 1
        assert set(
            await snapshot.fetch_chunks([OLD_REVISION.chunk_id(0), NEW_REVISION.chunk_id(0)], "")
        ) == {NEW_REVISION.chunk_id(0)}
    assert await is_pool_idle(stack)


async def test_calls_beyond_connection_count_wait(stack: SearchStack) -> None:
    await insert_documents(stack.connection, OLD_REVISION)
    async with stack.search.open_snapshot() as snapshot:
        assert (
            await asyncio.gather(*(snapshot.count_chunks("default") for _ in range(20))) == [2] * 20
        )


async def test_queries_beyond_pool_capacity_wait(database: str) -> None:
    async with open_search_stack(database, pool_size=5) as desk:
        await insert_documents(desk.connection, OLD_REVISION)

        async def question() -> list[int]:
            async with desk.search.open_snapshot() as snapshot:
                return await asyncio.gather(*(snapshot.count_chunks("default") for _ in range(3)))

        async with asyncio.timeout(60):
            assert await asyncio.gather(*(question() for _ in range(8))) == [[2, 2, 2]] * 8
        assert await is_pool_idle(desk)


async def test_cancelled_retriever_does_not_affect_the_snapshot(stack: SearchStack) -> None:
    await insert_documents(stack.connection, OLD_REVISION)
    async with stack.search.open_snapshot() as snapshot:
        for _ in range(5):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    async with snapshot._connections.acquire() as connection:
                        await connection.execute("select pg_sleep(30)")
        await insert_documents(stack.connection, NEW_REVISION)
        assert await snapshot.count_chunks("default") == 2
    running = (
        "select count(*) from pg_stat_activity where query like 'select pg_sleep%' "
        "and state = 'active'"
    )
    assert await stack.connection.fetchval(running) == 0


async def test_failed_query_returns_its_connections(stack: SearchStack) -> None:
    await insert_documents(stack.connection, OLD_REVISION)
    with pytest.raises(ZeroDivisionError):
        async with stack.search.open_snapshot() as snapshot:
            await snapshot.count_chunks("default")
            raise ZeroDivisionError
    assert await is_pool_idle(stack)


async def test_unknown_generation_is_named(stack: SearchStack) -> None:
    with pytest.raises(NotFound, match="Unknown generation 'g7'"):
        async with stack.search.open_snapshot("g7"):
            pass
    await stack.connection.execute("delete from live_generation")
    with pytest.raises(TransientError, match="No generation is live yet"):
        async with stack.search.open_snapshot():
            pass
    assert await is_pool_idle(stack)


async def test_non_live_generation_can_be_queried(stack: SearchStack) -> None:
    await insert_generation(stack.connection, "g2", live=False)
    await insert_documents(stack.connection, OLD_REVISION)
    await activate_revision(stack.connection, OLD_REVISION)
    async with stack.search.open_snapshot("g2") as snapshot:
        assert snapshot.generation.name == "g2"
        assert not (
            await snapshot.search_lexical(
                "default", "heron", language="en", filters=NO_FILTERS, k=5, budget=100
            )
        ).hits


async def test_lost_connection_is_database_unavailable(stack: SearchStack) -> None:
    async with stack.search.open_snapshot() as snapshot:
        await snapshot.count_chunks("default")
        await stack.connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where application_name = 'search' and datname = current_database()"
        )
        with pytest.raises(DatabaseUnavailable):
            await snapshot.count_chunks("default")
    async with stack.search.open_snapshot() as snapshot:
        assert await snapshot.count_chunks("default") == 0


async def test_pool_of_one_connection_is_rejected(database: str) -> None:
    pool = await open_pool(database, size=1, name="search")
    with pytest.raises(ConfigurationError):
        PgSearch(pool)
    await close_pool(pool)


async def test_chunk_includes_citation_fields(stack: SearchStack) -> None:
    await insert_documents(stack.connection, OLD_REVISION)
    await stack.connection.execute(
        "insert into chunk_states (generation, chunk_id, document_id, ord, tenant, blob_key, "
        "blob_offset, blob_length) values ('g1', $1, $2, '{1,1}', 'default', 'k', 7, 9)",
        *(OLD_REVISION.chunk_id(0), OLD_REVISION.id),
    )
    async with stack.search.open_snapshot() as snapshot:
        chunks = await snapshot.fetch_chunks(
            [OLD_REVISION.chunk_id(0)], "wading birds, storks or a crane"
        )
        chunk = chunks[OLD_REVISION.chunk_id(0)]
        assert (
            chunk.text,
            chunk.prefix,
            chunk.revision,
            chunk.title,
            chunk.external_id,
            chunk.order,
        ) == ("heron stork", "Birds > Wading", 1, "Birds", "d", (1, 1))
        assert chunk.states == ("k", 7, 9) and chunk.spans == [{"char_start": 0, "char_end": 11}]
        assert dict(chunk.positions) == {"bird": [1], "wade": [2], "stork": [4]}
        parents = await snapshot.fetch_parents([chunk.parent_id])
        assert (parents[chunk.parent_id].section, parents[chunk.parent_id].pages) == ("Part", [1])
        backwards = await snapshot.fetch_children(
            [OLD_REVISION.parent_id(1), OLD_REVISION.parent_id(0)]
        )
        assert [child.chunk_id for child in backwards] == [
            OLD_REVISION.chunk_id(1),
            OLD_REVISION.chunk_id(0),
        ]
