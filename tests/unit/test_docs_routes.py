from __future__ import annotations

import re
from collections.abc import AsyncIterator
from urllib.parse import urljoin

import httpx2
import pytest

from api.app import create_app
from tests.unit.api_fakes import make_services


@pytest.fixture
async def client() -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(create_app(make_services())), base_url="http://localhost"
    ) as found:
        yield found


async def test_docs_page_references_only_local_resources(client: httpx2.AsyncClient) -> None:
    page = (await client.get("/docs")).text
    assert "://" not in page
    named = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert len(named) == 4
    for address in (*named, "openapi.json"):
        # As a browser resolves it.
        found = await client.get(urljoin("/docs", address))
        assert found.status_code == 200 and len(found.content) > 200, address


async def test_other_package_files_are_not_served(client: httpx2.AsyncClient) -> None:
    assert (await client.get("/docs/redoc.standalone.js")).status_code == 422
    assert (await client.get("/redoc")).status_code == 404
