"""Cypher over Bolt against ArcadeDB, filled from the graph views of two tenants."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import pytest

from engines.graph.bolt import BoltGraph
from schemas.errors import AnabranchError, EngineUnavailable, InvalidRequest
from schemas.ports.graph import GraphQuery, GraphRows
from tests.support.bolt_server import AUTH, find_free_port, load_graph, open_graph, read_view
from tests.support.document_rows import (
    SampleDocument,
    insert_documents,
    insert_mention,
    insert_relation,
)
from tests.support.search_stack import SearchStack, open_search_stack


async def insert_tenants(stack: SearchStack) -> None:
    for tenant in ("acme", "globex"):
        doc = SampleDocument("chain", ["ada", "bob", "cyd"], tenant=tenant, title=f"{tenant} staff")
        await insert_documents(stack.connection, doc)
        people = [
            await insert_mention(stack.connection, doc, place, "person", name)
            for place, name in enumerate(doc.texts)
        ]
        for place in range(2):
            await insert_relation(
                stack.connection, doc, place, people[place], people[place + 1], 0.8
            )


async def test_role_of_tenant_reads_its_visible_rows_only(stack: SearchStack) -> None:
    await insert_tenants(stack)
    hidden = SampleDocument("draft", ["hidden"], tenant="acme")
    await insert_documents(stack.connection, hidden, visible=False)
    counts = {"graph_entities": 3, "graph_documents": 1, "graph_chunks": 3}
    counts |= {"graph_related": 2, "graph_mentions": 3, "graph_part_of": 3}
    for view, count in counts.items():
        assert await stack.connection.fetchval(f"select count(*) from {view}") == 0
        for tenant in ("acme", "globex"):
            rows = await read_view(stack.connection, tenant, view)
            assert {row["tenant"] for row in rows} == {tenant} and len(rows) == count
    # The session cannot choose another tenant, nor read past the views.
    for attack in (
        "parent_chunks, set_config('request.jwt.claims', '{}', true)",
        "child_chunks",
        "documents",
        "entities",
        "entity_mentions",
    ):
        with pytest.raises(Exception, match=r"permission denied|does not exist"):
            await read_view(stack.connection, "acme", attack)


async def test_tenant_too_long_for_a_role_is_rejected(stack: SearchStack) -> None:
    with pytest.raises(Exception, match="at most 47 characters"):
        await stack.connection.fetchval("select grant_graph_access($1)", "t" * 48)


async def run(
    graph: BoltGraph, cypher: str, parameters: Mapping[str, Any] | None = None, tenant: str = "acme"
) -> GraphRows:
    query = GraphQuery.model_validate({"cypher": cypher, "parameters": parameters or {}})
    return await graph.run_query(tenant, query)


async def test_server_answers_with_rows_of_the_tenant(database: str, bolt_url: str) -> None:
    async with open_search_stack(database) as stack, open_graph(bolt_url) as graph:
        await insert_tenants(stack)
        await load_graph(stack.connection, bolt_url, "acme", "globex")

        found = await run(
            graph,
            "MATCH (c:Chunk)-[:MENTIONS]->(e:Entity) WHERE e.key IN $keys "
            "RETURN c.text AS text, e.name AS name ORDER BY text",
            {"keys": ["ada", "cyd"]},
        )
        assert found.columns == ["text", "name"]
        assert found.rows == [["ada", "ada"], ["cyd", "cyd"]]

        path = await run(
            graph,
            "MATCH (a:Entity {key: $from})-[:RELATED*1..2]->(b:Entity) RETURN b.key AS key "
            "ORDER BY key",
            {"from": "ada"},
        )
        assert path.rows == [["bob"], ["cyd"]]

        staff = await run(graph, "MATCH (d:Document)<-[:PART_OF]-(c) RETURN d.title, count(c)")
        assert staff.rows == [["acme staff", 3]]

        for pattern, count in {
            "(n)": 7,
            "(a)-->(n)": 8,
            "(a)--(n)": 16,
            "p = (a)-[*1..3]-(n)": None,
        }.items():
            tenants = await run(graph, f"MATCH {pattern} RETURN n.tenant, count(*)")
            assert [row[0] for row in tenants.rows] == ["acme"]
            assert count is None or tenants.rows[0][1] == count

        nodes = await run(graph, "MATCH (n:Entity) RETURN n LIMIT 2")
        assert len(nodes.rows) == nodes.limit == 2 and nodes.rows[0][0]["tenant"] == "acme"


async def test_results_are_bounded_and_slow_queries_end(stack: SearchStack, bolt_url: str) -> None:
    await insert_tenants(stack)
    await load_graph(stack.connection, bolt_url, "acme", "globex")
    async with open_graph(bolt_url, max_rows=5) as graph:
        result = await run(graph, "UNWIND $xs AS x UNWIND $xs AS y RETURN x LIMIT 90000", XS)
        assert len(result.rows) == result.limit == 5
    async with open_graph(bolt_url, timeout_s=0.3) as graph:
        started = time.monotonic()
        with pytest.raises(InvalidRequest) as caught:
            await run(graph, "UNWIND $xs AS x UNWIND $xs AS y UNWIND $xs AS z RETURN count(*)", XS)
        assert caught.value.code == "GRAPH_QUERY_TIMEOUT"
        assert time.monotonic() - started < 30
    # The next query gets a connection of its own.
    async with open_graph(bolt_url) as graph:
        assert (await run(graph, "RETURN 1 AS one")).rows == [[1]]


XS = {"xs": list(range(200))}


async def test_rejected_queries_name_the_reason(bolt_url: str) -> None:
    async with open_graph(bolt_url) as graph:
        for cypher, parameters, tenant, code in (
            ("MATCH (n) DETACH DELETE n RETURN 1", {}, "acme", "CYPHER_NOT_ALLOWED"),
            ("MATCH (n) RETURN missing", {}, "acme", "CYPHER_REJECTED"),
            ("MATCH (n) WHERE n.id = $id RETURN n", {}, "acme", "CYPHER_PARAMETERS"),
            ("MATCH (n) RETURN n", {"tenant": "globex"}, "acme", "CYPHER_PARAMETERS"),
            ("MATCH (n) RETURN n", {}, "globex", "NO_GRAPH_SERVER"),
        ):
            with pytest.raises(InvalidRequest) as caught:
                await run(graph, cypher, parameters, tenant)
            assert caught.value.code == code


async def test_unreachable_server_and_wrong_password_are_reported(bolt_url: str) -> None:
    url = f"bolt://127.0.0.1:{find_free_port()}"
    for address, auth, code in (
        (url, AUTH, "GRAPH_UNAVAILABLE"),
        (bolt_url, ("root", "wrong-password"), "ENGINE_KEY_REFUSED"),
    ):
        async with open_graph(address, auth=auth) as graph:
            with pytest.raises(AnabranchError) as caught:
                await run(graph, "RETURN 1")
            assert isinstance(caught.value, EngineUnavailable) and caught.value.code == code
