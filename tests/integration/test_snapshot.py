"""One question sees one state, whatever is written meanwhile, and gives its connections back."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from schemas.errors import ConfigurationError, DatabaseUnavailable, NotFound
from schemas.questions import Filters
from sql.pool import close_pool, open_pool
from sql.search import PgSearch
from tests.rows import Doc, add, add_generation, add_mention, flip
from tests.searching import Stand, stand

ALL = Filters()
OLD = Doc("d", ["heron stork", "crane"], vectors=[[1, 0, 0, 0], [0, 1, 0, 0]], title="Birds", prefix="Birds > Wading")
NEW = Doc("d", ["heron eagle"], vectors=[[1, 0, 0, 0]], order=(1, 2), revision=2)
VECTOR = np.array([1, 0, 0, 0], dtype=np.float32)


async def idle(desk: Stand) -> bool:
    """All connections are back in the pool and in no transaction."""
    states = await desk.connection.fetch("select state from pg_stat_activity where application_name = 'search' and datname = current_database()")
    return desk.pool.get_idle_size() == desk.pool.get_size() and all(row["state"] == "idle" for row in states)


async def test_every_channel_sees_the_state_of_the_beginning_while_writes_go_on(database: str) -> None:
    async with stand(database) as desk:
        await add(desk.connection, OLD)
        await add_mention(desk.connection, OLD, 0, "bird", "heron")
        async with desk.search.snapshot() as snapshot:
            await add(desk.connection, NEW)
            lexical, semantic, seeds, size = await asyncio.gather(
                snapshot.lexical("default", "heron", language="en", filters=ALL, k=5, budget=100),
                snapshot.semantic("default", VECTOR, filters=ALL, k=5),
                snapshot.link("default", ["heron"]),
                snapshot.corpus_size("default"),
            )
            assert [hit.chunk_id for hit in lexical.hits] == [OLD.chunk_id(0)]
            assert [hit.chunk_id for hit in semantic] == [OLD.chunk_id(0), OLD.chunk_id(1)]
            assert [seed.key for seed in seeds] == ["heron"] and size == 2
            assert [hit.chunk_id for hit in await snapshot.graph("default", seeds, hops=2, fan_out=5, decay=0.5, filters=ALL, k=5)] == [OLD.chunk_id(0)]
            assert set(await snapshot.chunks([OLD.chunk_id(0), NEW.chunk_id(0)])) == {OLD.chunk_id(0)}
        async with desk.search.snapshot() as snapshot:
            assert await snapshot.corpus_size("default") == 1
            assert set(await snapshot.chunks([OLD.chunk_id(0), NEW.chunk_id(0)])) == {NEW.chunk_id(0)}
        assert await idle(desk)


async def test_more_calls_than_connections_wait_for_each_other(database: str) -> None:
    async with stand(database) as desk:
        await add(desk.connection, OLD)
        async with desk.search.snapshot() as snapshot:
            assert await asyncio.gather(*(snapshot.corpus_size("default") for _ in range(20))) == [2] * 20


async def test_more_questions_than_the_pool_has_room_for_take_turns(database: str) -> None:
    async with stand(database, pool_size=5) as desk:
        await add(desk.connection, OLD)

        async def question() -> list[int]:
            async with desk.search.snapshot() as snapshot:
                return await asyncio.gather(*(snapshot.corpus_size("default") for _ in range(3)))

        async with asyncio.timeout(60):
            assert await asyncio.gather(*(question() for _ in range(8))) == [[2, 2, 2]] * 8
        assert await idle(desk)


async def test_a_cancelled_channel_leaves_the_others_their_snapshot(database: str) -> None:
    async with stand(database) as desk:
        await add(desk.connection, OLD)
        async with desk.search.snapshot() as snapshot:
            for _ in range(5):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.05):
                        async with snapshot._readers.one() as connection:
                            await connection.execute("select pg_sleep(30)")
            await add(desk.connection, NEW)
            assert await snapshot.corpus_size("default") == 2
        running = "select count(*) from pg_stat_activity where query like 'select pg_sleep%' and state = 'active'"
        assert await desk.connection.fetchval(running) == 0


async def test_a_question_that_fails_gives_its_connections_back(database: str) -> None:
    async with stand(database) as desk:
        await add(desk.connection, OLD)
        with pytest.raises(ZeroDivisionError):
            async with desk.search.snapshot() as snapshot:
                await snapshot.corpus_size("default")
                raise ZeroDivisionError
        assert await idle(desk)


async def test_an_unknown_generation_is_told_by_name(database: str) -> None:
    async with stand(database) as desk:
        with pytest.raises(NotFound, match="no generation g7"):
            async with desk.search.snapshot("g7"):
                pass
        await desk.connection.execute("delete from live_generation")
        with pytest.raises(NotFound, match="no live generation"):
            async with desk.search.snapshot():
                pass
        assert await idle(desk)


async def test_a_generation_other_than_the_live_one_can_be_asked(database: str) -> None:
    async with stand(database) as desk:
        await add_generation(desk.connection, "g2", live=False)
        await add(desk.connection, OLD)
        await flip(desk.connection, OLD)
        async with desk.search.snapshot("g2") as snapshot:
            assert snapshot.generation.name == "g2"
            assert not (await snapshot.lexical("default", "heron", language="en", filters=ALL, k=5, budget=100)).hits


async def test_a_lost_server_connection_is_an_unavailable_database(database: str) -> None:
    async with stand(database) as desk:
        async with desk.search.snapshot() as snapshot:
            await snapshot.corpus_size("default")
            await desk.connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'search' and datname = current_database()"
            )
            with pytest.raises(DatabaseUnavailable):
                await snapshot.corpus_size("default")
        async with desk.search.snapshot() as snapshot:
            assert await snapshot.corpus_size("default") == 0


async def test_a_pool_of_one_connection_is_refused(database: str) -> None:
    pool = await open_pool(database, size=1, name="search")
    with pytest.raises(ConfigurationError):
        PgSearch(pool)
    await close_pool(pool)


async def test_a_chunk_comes_with_what_a_citation_needs(database: str) -> None:
    async with stand(database) as desk:
        await add(desk.connection, OLD)
        await desk.connection.execute(
            "insert into chunk_states (generation, chunk_id, document_id, ord, tenant, blob_key, blob_offset, blob_length) values ('g1', $1, $2, '{1,1}', 'default', 'k', 7, 9)",
            *(OLD.chunk_id(0), OLD.id),
        )
        async with desk.search.snapshot() as snapshot:
            chunk = (await snapshot.chunks([OLD.chunk_id(0)]))[OLD.chunk_id(0)]
            assert (chunk.text, chunk.prefix, chunk.revision, chunk.title, chunk.external_id, chunk.order) == (
                "heron stork",
                "Birds > Wading",
                1,
                "Birds",
                "d",
                (1, 1),
            )
            assert chunk.states == ("k", 7, 9) and chunk.spans == [{"char_start": 0, "char_end": 11}]
            assert dict(chunk.positions) == {"bird": [1], "wade": [2], "heron": [3], "stork": [4]}
            assert chunk.positions["heron"] == [3] and "crane" not in chunk.positions
            parents = await snapshot.parents([chunk.parent_id])
            assert (parents[chunk.parent_id].section, parents[chunk.parent_id].pages) == ("Part", [1])
            backwards = await snapshot.children([OLD.parent_id(1), OLD.parent_id(0)])
            assert [child.chunk_id for child in backwards] == [OLD.chunk_id(1), OLD.chunk_id(0)]
