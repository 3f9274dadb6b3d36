"""Cosine similarity, exact while vectors are few, through the graph index when they are many."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import numpy as np
import pytest

from schemas.ports.search import Hit
from schemas.questions import Filters
from sql.vector_index import ensure_vector_index
from tests.postgres_fixture import administer
from tests.rows import Doc, add, flip
from tests.searching import Stand, stand

ALL = Filters()
EAST, NORTH, BETWEEN = [1.0, 0, 0, 0], [0, 1.0, 0, 0], [1.0, 1.0, 0, 0]


async def ask(desk: Stand, vector: Sequence[float], *, filters: Filters = ALL, k: int = 10, tenant: str = "default") -> Sequence[Hit]:
    async with desk.search.snapshot() as snapshot:
        return await snapshot.semantic(tenant, np.array(vector, dtype=np.float32), filters=filters, k=k)


def random_docs(count: int, *, seed: int = 5, dimension: int = 4, **fields: object) -> list[Doc]:
    rng = random.Random(seed)
    return [Doc(f"v{seed}-{n}", [f"text {n}"], vectors=[[rng.gauss(0, 1) for _ in range(dimension)]], **fields) for n in range(count)]  # type: ignore[arg-type]


def cosine(a: Sequence[float], b: Sequence[float]) -> float:
    return float(np.dot(a, b) / np.linalg.norm(a) / np.linalg.norm(b))


async def pretend_many(desk: Stand) -> None:
    """As if the generation had 20,000 vectors more."""
    await desk.connection.execute("insert into corpus_deltas (generation, tenant, cfg, chunks) values ('g1', 'elsewhere', 'simple', 20000)")


async def test_scores_are_cosines_and_the_best_come_first(database: str) -> None:
    documents = random_docs(40)
    async with stand(database) as desk:
        await add(desk.connection, *documents)
        hits = await ask(desk, BETWEEN, k=40)
        expected = sorted(documents, key=lambda doc: -cosine(doc.vectors[0], BETWEEN))  # type: ignore[index]
        assert [hit.document_id for hit in hits[:10]] == [doc.id for doc in expected[:10]]
        assert hits[0].score == pytest.approx(cosine(expected[0].vectors[0], BETWEEN), abs=2e-3)  # type: ignore[index]


async def test_equal_scores_are_ordered_by_id(database: str) -> None:
    documents = [Doc(f"same-{n}", ["x"], vectors=[EAST]) for n in range(12)]
    async with stand(database) as desk:
        await add(desk.connection, *documents)
        assert [hit.chunk_id for hit in await ask(desk, EAST, k=12)] == sorted(doc.chunk_id(0) for doc in documents)


async def test_only_visible_vectors_of_the_tenant_are_found(database: str) -> None:
    first, second = Doc("a", ["x"], vectors=[EAST]), Doc("a", ["y"], vectors=[NORTH], order=(1, 2), revision=2)
    async with stand(database) as desk:
        await add(desk.connection, first, Doc("a", ["x"], vectors=[EAST], tenant="other"))
        await add(desk.connection, second, visible=False)
        assert [hit.chunk_id for hit in await ask(desk, NORTH)] == [first.chunk_id(0)]
        await flip(desk.connection, second)
        assert [hit.chunk_id for hit in await ask(desk, NORTH)] == [second.chunk_id(0)]


async def test_there_is_no_index_below_twenty_thousand_vectors(database: str) -> None:
    async with stand(database) as desk:
        await add(desk.connection, *random_docs(3))
        assert await ensure_vector_index(desk.pool, desk.generation) is False


async def test_the_index_is_built_once_and_finds_what_the_exact_scan_finds(database: str) -> None:
    documents = random_docs(400)
    async with stand(database) as desk:
        await add(desk.connection, *documents)
        exact = await ask(desk, BETWEEN, k=20)
        await pretend_many(desk)
        built = await asyncio.gather(*(ensure_vector_index(desk.pool, desk.generation) for _ in range(2)))
        assert sorted(built) == [False, True]
        assert await ensure_vector_index(desk.pool, desk.generation) is False
        await desk.connection.execute("vacuum analyze chunk_vectors")
        near = await ask(desk, BETWEEN, k=20)
        assert len({hit.chunk_id for hit in near} & {hit.chunk_id for hit in exact}) >= 19
        assert [hit.score for hit in near] == sorted((hit.score for hit in near), reverse=True)


async def test_a_question_to_many_vectors_goes_through_the_index(database: str) -> None:
    async with stand(database) as desk:
        await add(desk.connection, *random_docs(400))
        await pretend_many(desk)
        await ensure_vector_index(desk.pool, desk.generation)
        await desk.connection.execute("vacuum analyze chunk_vectors")
        await ask(desk, BETWEEN, k=5)
        await desk.connection.execute("select pg_stat_force_next_flush()")
        for _ in range(50):
            if await desk.connection.fetchval("select idx_scan from pg_stat_all_indexes where indexrelname = 'chunk_vectors_near_g1'"):
                return
            await asyncio.sleep(0.1)
        pytest.fail("the index was not used")


async def test_a_build_that_was_cut_off_is_done_again(database: str, superuser_database: str) -> None:
    async with stand(database) as desk:
        await add(desk.connection, *random_docs(20))
        await pretend_many(desk)
        await ensure_vector_index(desk.pool, desk.generation)
        administer(superuser_database, "update pg_index set indisvalid = false where indexrelid = 'anabranch.chunk_vectors_near_g1'::regclass")
        assert await ensure_vector_index(desk.pool, desk.generation) is True
        assert await desk.connection.fetchval("select indisvalid from pg_index where indexrelid = 'chunk_vectors_near_g1'::regclass")


async def test_a_filter_gets_its_k_hits_from_the_index_too(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few of many pass and are looked up hit by hit: the scan of the index goes on until there are enough."""
    monkeypatch.setattr("sql.scope.FEW_DOCUMENTS", 0)
    async with stand(database) as desk:
        await add(desk.connection, *random_docs(600), *random_docs(12, seed=6, collection="rare"))
        await pretend_many(desk)
        await ensure_vector_index(desk.pool, desk.generation)
        await desk.connection.execute("vacuum analyze chunk_vectors")
        hits = await ask(desk, BETWEEN, filters=Filters(collections=["rare"]), k=10)
        assert {hit.document_id for hit in hits} <= {doc.id for doc in random_docs(12, seed=6)} and len(hits) == 10
