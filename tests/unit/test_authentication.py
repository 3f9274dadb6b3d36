from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import httpx2
import pytest
from pydantic import SecretStr

from anabranch.identity.authentication import LocalTokenAuthenticator
from api.app import create_app
from schemas.errors import Unauthenticated
from schemas.principals import Principal
from tests.support.api_client import BEARER, TOKEN, add_local_token
from tests.unit.api_fakes import make_services


@pytest.fixture
async def anonymous_client() -> AsyncIterator[httpx2.AsyncClient]:
    """A client without credentials."""
    transport = httpx2.ASGITransport(create_app(add_local_token(make_services())))
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/documents"),
        ("POST", "/v1/search"),
        ("POST", "/v1/sources"),
        ("POST", "/v1/generations/g1/promote"),
        ("GET", "/v1/no-such-path"),
        ("GET", "/metrics"),
        ("GET", "/health"),
        ("GET", "/v1/stream"),
    ],
)
@pytest.mark.parametrize(
    "authorization",
    [None, "Bearer wrong", "Bearer", f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer \xe4"],
)
async def test_request_without_valid_token_is_unauthenticated(
    anonymous_client: httpx2.AsyncClient, method: str, path: str, authorization: str | None
) -> None:
    headers = {"Authorization": authorization.encode("latin-1")} if authorization else {}
    response = await anonymous_client.request(method, path, headers=headers)
    assert (response.status_code, response.json()["code"]) == (401, "UNAUTHENTICATED")
    assert response.headers["www-authenticate"].startswith("Bearer")
    assert "token" in response.json()["remedy"]


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/docs", "/openapi.json"])
async def test_probes_and_documentation_need_no_token(
    anonymous_client: httpx2.AsyncClient, path: str
) -> None:
    assert (await anonymous_client.get(path)).status_code == 200


async def test_local_token_authenticates_as_operator(anonymous_client: httpx2.AsyncClient) -> None:
    assert (await anonymous_client.get("/v1/documents", headers=BEARER)).status_code == 200
    found = await LocalTokenAuthenticator(SecretStr(TOKEN), "default")(TOKEN, None)
    assert found == Principal(id="local", tenant="default", role="operator")
    assert await LocalTokenAuthenticator(SecretStr(TOKEN), "default")(TOKEN, "acme") == replace(
        found, tenant="acme", home_tenant="default"
    )


@pytest.mark.parametrize("credential", [None, "", "None", TOKEN])
async def test_no_credential_is_accepted_without_configured_token(credential: str | None) -> None:
    with pytest.raises(Unauthenticated):
        await LocalTokenAuthenticator(None, "default")(credential, None)
