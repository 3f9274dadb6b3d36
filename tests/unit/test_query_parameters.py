"""Unknown, misspelled and repeated query parameters."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from urllib.parse import quote

import httpx2
import pytest

from tests.support.api_client import api_client, build_openapi_document
from tests.unit.api_fakes import DOCUMENT_ID, make_services

ODD_SPELLINGS = (
    "Limit",
    "LIMIT",
    " limit",
    "limit ",
    "limit[]",
    "limit[0]",
    "limit.",
    "limits",
    "limıt",
    "ｌｉｍｉｔ",
    "li\u200bmit",
    "__proto__",
    "",
    "limit;after",
    "tenant",
    "caller",
    "services",
)


@pytest.fixture
async def client() -> AsyncIterator[httpx2.AsyncClient]:
    async with api_client(make_services()) as http:
        yield http


@pytest.mark.parametrize("name", ODD_SPELLINGS)
async def test_unknown_query_parameter_is_refused(client: httpx2.AsyncClient, name: str) -> None:
    response = await client.get(f"/v1/documents?{quote(name)}=5&limit=5")
    assert response.status_code == 422, response.text
    problem = response.json()
    assert problem["code"] == "UNKNOWN_PARAMETER"
    assert problem["detail"] == f"Unknown query parameter {name!r}."
    assert problem["remedy"] == (
        "Known parameters: after, collection, date_from, date_to, external_id, limit, name, sort, "
        "state, tag, text."
    )


async def test_preview_is_refused_until_it_exists(client: httpx2.AsyncClient) -> None:
    for value in ("true", "false", ""):
        response = await client.post(f"/v1/ingest?preview={value}", json={"text": "x"})
        assert response.status_code == 422
        assert response.json()["detail"] == "Unknown query parameter 'preview'."


@pytest.mark.parametrize("query", ["limit=5&limit=6", "limit=5&limit=5", "tag=a&tag=b", "tag&tag"])
async def test_repeated_parameter_is_refused(client: httpx2.AsyncClient, query: str) -> None:
    problem = (await client.get(f"/v1/documents?{query}")).json()
    assert (problem["status"], problem["code"]) == (422, "REPEATED_PARAMETER")
    assert repr(query[: query.find("=") if "=" in query else 3]) in problem["detail"]


async def test_list_parameter_may_be_repeated(client: httpx2.AsyncClient) -> None:
    seeds = f"seed={DOCUMENT_ID}&seed={DOCUMENT_ID}"
    assert (await client.get(f"/v1/graph/subgraph?{seeds}")).status_code == 200
    problem = (await client.get(f"/v1/graph/subgraph?{seeds}&hops=1&hops=2")).json()
    assert problem["code"] == "REPEATED_PARAMETER"


async def test_many_long_names_are_quoted_in_short(client: httpx2.AsyncClient) -> None:
    names = "&".join(f"{number}{'x' * 500}=1" for number in range(50))
    problem = (await client.get(f"/v1/documents?{names}")).json()
    assert problem["code"] == "UNKNOWN_PARAMETER"
    assert len(problem["detail"]) < 500


async def test_probes_refuse_unknown_parameters_too(client: httpx2.AsyncClient) -> None:
    for path in ("/livez", "/readyz", "/health", "/metrics"):
        assert (await client.get(path)).status_code == 200
        assert (await client.get(f"{path}?verbose=1")).status_code == 422


async def test_documented_parameters_are_known(client: httpx2.AsyncClient) -> None:
    """NUL is refused in any parameter's value, before the operation runs."""
    for template, path in build_openapi_document()["paths"].items():
        url = re.sub(r"{\w+}", str(DOCUMENT_ID), template)
        for method, operation in path.items():
            for parameter in operation.get("parameters", []):
                if parameter["in"] == "query":
                    response = await client.request(method, f"{url}?{parameter['name']}=%00")
                    assert response.json()["code"] == "INVALID_REQUEST", (method, template)
