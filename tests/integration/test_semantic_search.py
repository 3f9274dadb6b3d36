"""Cosine similarity: exact for few vectors, through the graph index for many."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import numpy as np
import pytest

from schemas.generations import HnswConfig
from schemas.ports.search import Hit
from schemas.questions import Filters
from sql.index import search
from sql.index.search import compute_build_memory_mib, ensure_vector_index
from sql.index.snapshot import resolve_scope
from tests.support.document_rows import SampleDocument, activate_revision, insert_documents
from tests.support.eventually import eventually
from tests.support.postgres_fixture import execute_sql
from tests.support.search_stack import SearchStack, open_search_stack

NO_FILTERS, HNSW = Filters(), HnswConfig()
EAST, NORTH, BETWEEN = [1.0, 0, 0, 0], [0, 1.0, 0, 0], [1.0, 1.0, 0, 0]


async def search_semantic(
    stack: SearchStack,
    vector: Sequence[float],
    *,
    filters: Filters = NO_FILTERS,
    k: int = 10,
    tenant: str = "default",
) -> Sequence[Hit]:
    async with stack.search.open_snapshot() as snapshot:
        return await snapshot.search_semantic(
            tenant, np.array(vector, dtype=np.float32), filters=filters, k=k
        )


def generate_documents(
    count: int, *, seed: int = 5, dimension: int = 4, **fields: object
) -> list[SampleDocument]:
    rng = random.Random(seed)
    return [
        SampleDocument(
            f"v{seed}-{n}",
            [f"text {n}"],
            vectors=[[rng.gauss(0, 1) for _ in range(dimension)]],
            **fields,
        )
        for n in range(count)
    ]  # type: ignore[arg-type]


async def simulate_many_vectors(stack: SearchStack) -> None:
    """Raise the generation's vector count by 20,000 without inserting vectors."""
    await stack.connection.execute(
        "insert into corpus_deltas (generation, tenant, cfg, chunks) "
        "values ('g1', 'elsewhere', 'simple', 20000)"
    )


async def test_equal_scores_are_ordered_by_id(stack: SearchStack) -> None:
    documents = [SampleDocument(f"same-{n}", ["x"], vectors=[EAST]) for n in range(12)]
    await insert_documents(stack.connection, *documents)
    assert [hit.chunk_id for hit in await search_semantic(stack, EAST, k=12)] == sorted(
        doc.chunk_id(0) for doc in documents
    )


async def test_only_visible_vectors_of_the_tenant_match(stack: SearchStack) -> None:
    first, second = (
        SampleDocument("a", ["x"], vectors=[EAST]),
        SampleDocument("a", ["y"], vectors=[NORTH], order=(1, 2), revision=2),
    )
    await insert_documents(
        stack.connection, first, SampleDocument("a", ["x"], vectors=[EAST], tenant="other")
    )
    await insert_documents(stack.connection, second, visible=False)
    assert [hit.chunk_id for hit in await search_semantic(stack, NORTH)] == [first.chunk_id(0)]
    await activate_revision(stack.connection, second)
    assert [hit.chunk_id for hit in await search_semantic(stack, NORTH)] == [second.chunk_id(0)]


async def test_no_vector_index_below_twenty_thousand_vectors(stack: SearchStack) -> None:
    await insert_documents(stack.connection, *generate_documents(3))
    assert await ensure_vector_index(stack.pool, stack.generation) is False


async def test_vector_index_is_built_once_and_matches_exact_scan(stack: SearchStack) -> None:
    documents = generate_documents(400)
    await insert_documents(stack.connection, *documents)
    exact = await search_semantic(stack, BETWEEN, k=20)
    await simulate_many_vectors(stack)
    built = await asyncio.gather(
        *(ensure_vector_index(stack.pool, stack.generation) for _ in range(2))
    )
    assert sorted(built) == [False, True]
    assert await ensure_vector_index(stack.pool, stack.generation) is False
    await stack.connection.execute("vacuum analyze chunk_vectors")
    near = await search_semantic(stack, BETWEEN, k=20)
    assert len({hit.chunk_id for hit in near} & {hit.chunk_id for hit in exact}) >= 19
    assert [hit.score for hit in near] == sorted((hit.score for hit in near), reverse=True)


@pytest.mark.parametrize("width", [10, 1000])
async def test_search_width_holds_for_one_transaction(stack: SearchStack, width: int) -> None:
    await insert_documents(stack.connection, *generate_documents(20))
    async with stack.pool.acquire() as connection:
        async with connection.transaction():
            scope = await resolve_scope(connection, stack.generation, "default", NO_FILTERS, None)
            vector = np.array(BETWEEN, dtype=np.float32)
            hits = await search.search_semantic(
                connection, scope, vector, 5, HNSW.exact_below, width, HNSW
            )
            assert len(hits) == 5
            assert await connection.fetchval("show hnsw.ef_search") == str(width)
        assert await connection.fetchval("show hnsw.ef_search") == "100"


async def test_query_over_many_vectors_uses_the_index(stack: SearchStack) -> None:
    await insert_documents(stack.connection, *generate_documents(400))
    await simulate_many_vectors(stack)
    await ensure_vector_index(stack.pool, stack.generation)
    await stack.connection.execute("vacuum analyze chunk_vectors")
    await search_semantic(stack, BETWEEN, k=5)
    await stack.connection.execute("select pg_stat_force_next_flush()")
    n_scans = (
        "select idx_scan from pg_stat_all_indexes where indexrelname = 'chunk_vectors_near_g1'"
    )
    await eventually(lambda: stack.connection.fetchval(n_scans), what="a scan of the index")


async def test_interrupted_index_build_is_repeated(
    stack: SearchStack, superuser_database: str
) -> None:
    await insert_documents(stack.connection, *generate_documents(20))
    await simulate_many_vectors(stack)
    await ensure_vector_index(stack.pool, stack.generation)
    execute_sql(
        superuser_database,
        "update pg_index set indisvalid = false "
        "where indexrelid = 'anabranch.chunk_vectors_near_g1'::regclass",
    )
    assert await ensure_vector_index(stack.pool, stack.generation) is True
    assert await stack.connection.fetchval(
        "select indisvalid from pg_index where indexrelid = 'chunk_vectors_near_g1'::regclass"
    )


async def test_filtered_query_gets_k_hits_from_the_index(
    stack: SearchStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few of many pass and are looked up hit by hit: the scan of the index goes on until there are
    enough.
    """
    monkeypatch.setattr("sql.index.snapshot.MAX_LISTED_DOCUMENTS", 0)
    await insert_documents(
        stack.connection,
        *generate_documents(600),
        *generate_documents(12, seed=6, collection="rare"),
    )
    await simulate_many_vectors(stack)
    await ensure_vector_index(stack.pool, stack.generation)
    await stack.connection.execute("vacuum analyze chunk_vectors")
    hits = await search_semantic(stack, BETWEEN, filters=Filters(collections=["rare"]), k=10)
    assert {hit.document_id for hit in hits} <= {
        doc.id for doc in generate_documents(12, seed=6)
    } and len(hits) == 10


async def test_index_is_built_with_the_constants_of_its_generation(database: str) -> None:
    hnsw = HnswConfig(m=4, ef_construction=20, exact_below=30)
    async with open_search_stack(database, hnsw=hnsw) as desk:
        await insert_documents(desk.connection, *generate_documents(29))
        assert await ensure_vector_index(desk.pool, desk.generation) is False
        await insert_documents(desk.connection, *generate_documents(1, seed=6))
        assert await ensure_vector_index(desk.pool, desk.generation) is True
        assert await desk.connection.fetchval(
            "select reloptions from pg_class where relname = 'chunk_vectors_near_g1'"
        ) == ["m=4", "ef_construction=20"]


@pytest.mark.parametrize(("exact_below", "is_listed"), [(12, True), (11, False)])
async def test_filtered_documents_are_listed_up_to_exact_limit(
    database: str, exact_below: int, is_listed: bool
) -> None:
    filters, hnsw = Filters(collections=["rare"]), HnswConfig(exact_below=exact_below)
    async with open_search_stack(database, hnsw=hnsw) as desk:
        await insert_documents(
            desk.connection,
            *generate_documents(12, collection="rare"),
            *generate_documents(5, seed=6),
        )
        scope = await resolve_scope(desk.connection, desk.generation, "default", filters, None)
        assert (scope.listed_documents is not None) is is_listed
        assert len(await search_semantic(desk, BETWEEN, filters=filters)) == 10


@pytest.mark.parametrize(
    ("vectors", "m", "server_mib", "expected"),
    [
        (20_000, 16, 64, 98),
        (1_000_000, 16, 64, 512),
        (1_000_000, 16, 2_900, 1_772),
        (1_000_000, 32, 2_900, 2_505),
        (10_000_000, 16, 2_900, 2_900),
    ],
)
def test_build_uses_memory_that_graph_needs(
    vectors: int, m: int, server_mib: int, expected: int
) -> None:
    assert compute_build_memory_mib(vectors, 384, m, server_mib) == expected
