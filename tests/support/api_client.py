"""Clients with all permissions for an API in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import httpx2
from pydantic import SecretStr

from anabranch.identity.authentication import CredentialAuthenticator, LocalTokenAuthenticator
from api.app import create_app
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
