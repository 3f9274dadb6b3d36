"""Clients of the API in tests, agents among them, and what its OpenAPI document declares."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cache
from typing import Any

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from pydantic import SecretStr

from anabranch.identity.authentication import CredentialAuthenticator, LocalTokenAuthenticator
from api.app import create_app, create_routes
from api.services import Services
from schemas.principals import Principal

TOKEN = "token-of-the-tests-0123456789"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


def make_caller(
    tenant: str = "default", *, name: str = "local", readers: tuple[str, ...] | None = None
) -> Principal:
    return Principal(name, tenant, "operator", readers)


LOCAL_CALLER = make_caller()


def add_local_token(services: Services) -> Services:
    local = LocalTokenAuthenticator(SecretStr(TOKEN), "default")
    authenticate = services.authenticate
    return replace(
        services,
        authenticate=replace(authenticate, local=local)
        if isinstance(authenticate, CredentialAuthenticator)
        else local,
    )


@asynccontextmanager
async def api_client(services: Services) -> AsyncIterator[httpx2.AsyncClient]:
    """An error of ours is answered as a server answers it."""
    transport = httpx2.ASGITransport(
        create_app(add_local_token(services)), raise_app_exceptions=False
    )
    async with httpx2.AsyncClient(
        transport=transport, base_url="http://localhost", headers=BEARER, timeout=60
    ) as client:
        yield client


@cache
def build_openapi_document() -> dict[str, Any]:
    return create_routes().openapi()


@asynccontextmanager
async def open_agent(http: httpx2.AsyncClient, mode: str = "auto") -> AsyncIterator[Client]:
    """Connect the official client to `/mcp`, over an HTTP client that has the credential.

    Mode `legacy` begins with a handshake, as before version 2026-07-28 of the protocol.
    """
    transport = streamable_http_client(f"{http.base_url}/mcp", http_client=http)
    async with Client(transport, mode=mode) as agent:
        yield agent


async def call_tool(agent: Client, name: str, **arguments: Any) -> dict[str, Any]:
    """Return the structured result of a call that succeeds."""
    result = await agent.call_tool(name, arguments)
    assert not result.is_error, result.content
    return dict(result.structured_content)


async def fail_tool(agent: Client, name: str, **arguments: Any) -> str:
    """Return the text of a call that fails."""
    result = await agent.call_tool(name, arguments)
    assert result.is_error and result.structured_content is None, result
    (content,) = result.content
    return str(content.text)
