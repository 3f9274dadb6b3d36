"""`POST /v1/graph/query`: whose graph it reads, and which bodies it rejects."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest

from api.app import create_app
from schemas.ports.graph import GraphQuery, GraphRows
from schemas.principals import Principal
from tests.unit.api_fakes import make_services


@dataclass
class RecordingGraph:
    queries: list[tuple[str, GraphQuery]] = field(default_factory=list)

    async def run_query(self, tenant: str, query: GraphQuery) -> GraphRows:
        self.queries.append((tenant, query))
        return GraphRows(columns=["n"], rows=[[1]], limit=10)


@asynccontextmanager
async def open_api(
    graph: RecordingGraph | None, readers: tuple[str, ...] | None = None
) -> AsyncIterator[httpx2.AsyncClient]:
    async def authenticate(credential: str | None, tenant: str | None) -> Principal:
        return Principal("key:1", "acme", "reader", readers).for_tenant(tenant)

    app = create_app(make_services(authenticate=authenticate, graph=graph))
    transport = httpx2.ASGITransport(app, raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


QUERY = {"cypher": "MATCH (n) WHERE n.id = $id RETURN n", "parameters": {"id": "x"}}


async def test_query_runs_for_the_tenant_of_the_credential() -> None:
    graph = RecordingGraph()
    async with open_api(graph) as client:
        response = await client.post("/v1/graph/query", json=QUERY)
        assert response.json() == {"columns": ["n"], "rows": [[1]], "limit": 10}
        other = await client.post(
            "/v1/graph/query", json=QUERY, headers={"X-Anabranch-Tenant": "globex"}
        )
    assert other.status_code == 403
    assert graph.queries == [("acme", GraphQuery.model_validate(QUERY))]


async def test_caller_limited_to_readers_is_refused() -> None:
    graph = RecordingGraph()
    async with open_api(graph, readers=("user:ana",)) as client:
        response = await client.post("/v1/graph/query", json=QUERY)
    assert (response.status_code, response.json()["code"]) == (403, "LIMITED_TO_READERS")
    assert graph.queries == []


async def test_query_without_a_graph_server_names_the_setting() -> None:
    async with open_api(None) as client:
        response = await client.post("/v1/graph/query", json=QUERY)
    assert (response.status_code, response.json()["code"]) == (422, "NO_GRAPH_SERVER")
    assert "ANABRANCH_GRAPH__BOLT_URL" in response.json()["remedy"]


@pytest.mark.parametrize(
    "change",
    [
        {"cypher": ""},
        {"cypher": "x" * 10_001},
        {"parameters": {"a b": 1}},
        {"parameters": {"id": {"nested": 1}}},
        {"parameters": {"id": [["nested"]]}},
        {"parameters": {"id": list(range(1_001))}},
        {"parameters": {f"p{number}": 1 for number in range(65)}},
        {"tenant": "globex"},
        {"database": "globex"},
    ],
    ids=lambda change: next(iter(change)),
)
async def test_body_out_of_bounds_is_rejected(change: dict[str, Any]) -> None:
    graph = RecordingGraph()
    async with open_api(graph) as client:
        response = await client.post("/v1/graph/query", json=QUERY | change)
    assert response.status_code == 422 and graph.queries == []
