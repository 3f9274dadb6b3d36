"""The remedy for a value out of bounds states the bounds."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from api.app import create_app
from tests.unit.api_fakes import make_services


@pytest.fixture
async def client() -> AsyncIterator[httpx2.AsyncClient]:
    transport = httpx2.ASGITransport(create_app(make_services()), raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
        yield http


FOLDER_SOURCE = {"kind": "folder", "path": "/x"}
TABLE_SOURCE = {
    "kind": "postgres",
    "table": "a.b.c",
    "slot": "Slot",
    "mapping": {"id": ["id"], "body": ["body"]},
}


@pytest.mark.parametrize(
    ("path", "body", "remedy"),
    [
        ("/v1/query", {"query": "x", "k": 101}, "k: give at most 100."),
        ("/v1/search", {"query": "x", "k": 0}, "k: give at least 1."),
        ("/v1/search", {"query": "x" * 8001}, "query: give at most 8000 characters."),
        (
            "/v1/search",
            {"query": "x", "mode": "fast"},
            "mode: give one of 'auto', 'vector', 'graph' or 'hybrid'.",
        ),
        (
            "/v1/search",
            {"query": "x", "k": 101, "colour": "red"},
            "k: give at most 100. Compare the request with /openapi.json.",
        ),
        (
            "/v1/sources",
            {"name": "Not one", "connector": FOLDER_SOURCE},
            "name: give a letter a to z, then at most 39 of a to z, 0 to 9, _ and -.",
        ),
        (
            "/v1/sources",
            {"name": "a", "connector": TABLE_SOURCE},
            (
                "connector.postgres.table: give TABLE or SCHEMA.TABLE. "
                "connector.postgres.slot: give at most 63 of a to z, 0 to 9 and _."
            ),
        ),
        (
            "/v1/sources",
            {"name": "a", "connector": {"kind": "urls", "urls": ["x"]}},
            "connector.urls.urls: give an http or https address.",
        ),
        (
            "/v1/generations/compare",
            {"a": "g1", "b": "g2", "queries": 5001},
            "queries: give at most 5000.",
        ),
        ("/v1/ingest", {"text": "x", "title": "x" * 2001}, "title: give at most 2000 characters."),
    ],
)
async def test_remedy_states_bounds_of_invalid_body_field(
    client: httpx2.AsyncClient, path: str, body: dict[str, Any], remedy: str
) -> None:
    response = await client.post(path, json=body)
    assert (response.status_code, response.json()["remedy"]) == (422, remedy), response.text


@pytest.mark.parametrize(
    ("path", "remedy"),
    [
        ("/v1/documents?limit=501", "limit: give at most 500."),
        ("/v1/runs?limit=0", "limit: give at least 1."),
    ],
)
async def test_remedy_states_bounds_of_invalid_query_parameter(
    client: httpx2.AsyncClient, path: str, remedy: str
) -> None:
    assert (await client.get(path)).json()["remedy"] == remedy
