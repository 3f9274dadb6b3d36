"""The graph channel gives the same hits from the tables and from a graph server (ArcadeDB)."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest

from engines.graph.bolt import BoltGraph
from retrieval.ranking.channels import ChannelOutput, ChannelRequest
from retrieval.ranking.channels.graph import retrieve
from schemas.channels import GraphProfile
from schemas.errors import EngineUnavailable
from schemas.ids import make_entity_id
from schemas.ports.engines import QueryEmbedding
from schemas.ports.graph import GraphQuery, GraphServer
from schemas.ports.search import IndexSnapshot
from schemas.questions import Filters
from tests.support.bolt_server import find_free_port, load_graph, open_graph
from tests.support.document_rows import (
    SampleDocument,
    insert_documents,
    insert_mention,
    insert_relation,
)
from tests.support.search_stack import SearchStack, open_search_stack

HUB, N_PEOPLE = "hub", 24
NO_FILTERS = Filters()


async def insert_network(stack: SearchStack) -> None:
    """Insert a hub with spokes, parallel relations, ties, a circle, and the same for a stranger."""
    chance = random.Random(7)
    for tenant in ("acme", "globex"):
        names = [HUB, *(f"person {number:02}" for number in range(N_PEOPLE))]
        documents = [
            SampleDocument(key, [f"{key} {name}" for name in names], tenant=tenant, collection=key)
            for key in ("east", "west")
        ]
        await insert_documents(stack.connection, *documents)
        for document in documents:
            people = [
                await insert_mention(stack.connection, document, place, "person", name)
                for place, name in enumerate(names)
            ]
            pairs = [(0, place) for place in range(1, N_PEOPLE)]
            pairs += [tuple(chance.sample(range(1, N_PEOPLE + 1), 2)) for _ in range(30)]
            # A relation to itself, which both directions follow.
            pairs.append((3, 3))
            for ordinal, (subject, object_) in enumerate(dict.fromkeys(pairs)):
                await insert_relation(
                    stack.connection,
                    document,
                    ordinal % len(names),
                    people[subject],
                    people[object_],
                    # Few weights, so that many relations tie.
                    chance.choice([0.25, 0.5, 0.75, 1.0]),
                )


@asynccontextmanager
async def open_network(database: str, url: str) -> AsyncIterator[SearchStack]:
    async with open_search_stack(database) as stack:
        await insert_network(stack)
        await load_graph(stack.connection, url, "acme")
        yield stack


async def refuse_to_embed() -> QueryEmbedding:
    raise AssertionError("the graph channel needs no vector")


def make_request(
    snapshot: IndexSnapshot,
    server: GraphServer | None,
    *,
    names: tuple[str, ...] = (HUB, "person 03"),
    filters: Filters = NO_FILTERS,
    cypher: GraphQuery | None = None,
    **graph: Any,
) -> ChannelRequest:
    return ChannelRequest(
        snapshot,
        "acme",
        "",
        "en",
        {name: 1 / rank for rank, name in enumerate(names, 1)},
        filters,
        GraphProfile.model_validate({"backend": "bolt" if server else "sql", **graph}),
        200,
        refuse_to_embed,
        graph_server=server,
        cypher=cypher,
    )


async def retrieve_twice(
    stack: SearchStack, server: GraphServer, **options: Any
) -> tuple[ChannelOutput, ChannelOutput]:
    """Return what the graph server and what the tables give."""
    async with stack.search.open_snapshot() as snapshot:
        return (
            await retrieve(make_request(snapshot, server, **options)),
            await retrieve(make_request(snapshot, None, **options)),
        )


def get_scores(output: ChannelOutput) -> dict[UUID, float]:
    return {hit.chunk_id: hit.score for hit in output.hits}


async def test_both_backends_find_the_same_chunks(database: str, bolt_url: str) -> None:
    async with open_network(database, bolt_url) as stack, open_graph(bolt_url) as server:
        for strategy in ("entity_search", "traversal", "hybrid"):
            for hops in (1, 2):
                for fan_out in (2, 25):
                    options = {"strategy": strategy, "hops": hops, "fan_out": fan_out}
                    by_server, by_tables = await retrieve_twice(stack, server, **options)
                    expected = "sql" if strategy == "entity_search" else "bolt"
                    assert by_server.served_by == expected and by_server.notes == ()
                    assert by_tables.hits, options
                    assert get_scores(by_server) == pytest.approx(get_scores(by_tables)), options


async def test_filters_apply_to_what_the_server_finds(database: str, bolt_url: str) -> None:
    async with open_network(database, bolt_url) as stack, open_graph(bolt_url) as server:
        filters = Filters(collections=["east"])
        by_server, by_tables = await retrieve_twice(stack, server, filters=filters)
        assert by_server.served_by == "bolt" and by_server.hits
        assert get_scores(by_server) == pytest.approx(get_scores(by_tables))
        assert len({hit.document_id for hit in by_server.hits}) == 1


async def test_outdated_copy_adds_no_invisible_chunk(database: str, bolt_url: str) -> None:
    async with open_network(database, bolt_url) as stack, open_graph(bolt_url) as server:
        await stack.connection.execute(
            "delete from visible where document_id in "
            "(select id from documents where external_id = 'west')"
        )
        cypher = GraphQuery(
            cypher="MATCH (c:Chunk)-[:MENTIONS]->(e:Entity) WHERE e.key IN $keys "
            "RETURN c.id AS chunk_id ORDER BY chunk_id"
        )
        async with stack.search.open_snapshot() as snapshot:
            for query, served_by in ((None, "bolt"), (cypher, "cypher")):
                output = await retrieve(make_request(snapshot, server, cypher=query))
                assert output.served_by == served_by
                assert len({hit.document_id for hit in output.hits}) == 1


async def test_cypher_of_the_shipped_prompt_runs(database: str, bolt_url: str) -> None:
    cypher = GraphQuery(
        cypher="MATCH (a:Entity)-[rs:RELATED*1..2]-(b:Entity) WHERE a.key IN $keys AND b.key IN "
        "$keys AND a.key < b.key UNWIND rs AS r RETURN r.chunk_id AS chunk_id ORDER BY r.weight "
        "DESC LIMIT 50"
    )
    async with (
        open_network(database, bolt_url) as stack,
        open_graph(bolt_url) as server,
        stack.search.open_snapshot() as snapshot,
    ):
        output = await retrieve(make_request(snapshot, server, cypher=cypher))
        assert (output.served_by, output.notes) == ("cypher", ()) and output.hits
        # By the order of the rows.
        assert output.hits[0].score == 1.0
        # A query that the server cannot run leaves the built-in one.
        broken = cypher.model_copy(
            update={"cypher": "MATCH (a) WHERE a.key IN $keys RETURN missing AS chunk_id"}
        )
        output = await retrieve(make_request(snapshot, server, cypher=broken))
        assert output.served_by == "bolt" and "CYPHER_REJECTED" in output.notes[0]


async def test_server_follows_relations_of_the_tenant_only(database: str, bolt_url: str) -> None:
    async with open_network(database, bolt_url) as stack:
        await load_graph(stack.connection, bolt_url, "acme", "globex")
        async with open_graph(bolt_url) as server:
            hubs = [make_entity_id(tenant, "person", HUB) for tenant in ("acme", "globex")]
            relations = await server.follow_relations("acme", hubs, 3)
            assert {relation.source for relation in relations} == {hubs[0]}
            assert len(relations) == 3


async def test_tables_serve_while_the_server_is_down(database: str, bolt_url: str) -> None:
    async with (
        open_network(database, bolt_url) as stack,
        open_graph(f"bolt://127.0.0.1:{find_free_port()}") as server,
    ):
        reasons = []
        for _ in range(6):
            by_server, by_tables = await retrieve_twice(stack, server)
            assert by_server.served_by == "sql"
            assert get_scores(by_server) == get_scores(by_tables) != {}
            reasons += by_server.notes
        assert all("GRAPH_UNAVAILABLE" in reason for reason in reasons[:5])
        # The circuit is open: no further attempt.
        assert "circuit stays open" in reasons[5]


async def test_slow_server_leaves_the_tables_time_to_serve(database: str, bolt_url: str) -> None:
    async with open_network(database, bolt_url) as stack, open_graph(bolt_url) as server:
        slow = SlowGraph(server)
        started = time.monotonic()
        by_server, by_tables = await retrieve_twice(stack, slow, timeout_s=1.0)
        assert time.monotonic() - started < 30
        assert by_server.served_by == "sql" and "TIMED_OUT" in by_server.notes[0]
        assert get_scores(by_server) == get_scores(by_tables)
        # By the server's own limit, which counts as a failure of the server. On a busy machine it
        # ends before a connection is open.
        async with open_graph(bolt_url, timeout_s=0.000_1) as hurried:
            with pytest.raises(
                EngineUnavailable, match=r"longer than|ConnectionAcquisitionTimeout"
            ):
                await hurried.follow_relations("acme", [UUID(int=1)], 3)


async def test_graph_that_is_too_wide_is_left_to_the_tables(database: str, bolt_url: str) -> None:
    async with open_network(database, bolt_url) as stack, open_graph(bolt_url, max_rows=5) as graph:
        by_server, by_tables = await retrieve_twice(stack, graph)
        assert by_server.served_by == "sql" and "GRAPH_TOO_WIDE" in by_server.notes[0]
        assert get_scores(by_server) == get_scores(by_tables)


class SlowGraph:
    """Answers a heavy query first, as an overloaded server does."""

    def __init__(self, graph: BoltGraph) -> None:
        self._graph = graph

    async def run_query(self, tenant: str, query: GraphQuery) -> Any:
        return await self._graph.run_query(tenant, query)

    async def follow_relations(self, tenant: str, entity_ids: Any, fan_out: int) -> Any:
        numbers = {"xs": list(range(300))}
        heavy = "UNWIND $xs AS x UNWIND $xs AS y UNWIND $xs AS z RETURN count(*)"
        await self._graph.run_query(tenant, GraphQuery(cypher=heavy, parameters=numbers))
        return await self._graph.follow_relations(tenant, entity_ids, fan_out)
