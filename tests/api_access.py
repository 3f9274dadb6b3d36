"""Clients of an API in this process that may do everything."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import httpx2
from pydantic import SecretStr

from anabranch.desk.authentication import LocalTokenAuthenticator
from anabranch.identity.authentication import CredentialAuthenticator
from api.app import create_app
from api.services import Services

TOKEN = "token-of-the-tests-0123456789"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


def with_token(services: Services) -> Services:
    local = LocalTokenAuthenticator(SecretStr(TOKEN), "default")
    known = services.authenticate
    return replace(services, authenticate=replace(known, local=local) if isinstance(known, CredentialAuthenticator) else local)


@asynccontextmanager
async def api_client(services: Services) -> AsyncIterator[httpx2.AsyncClient]:
    """An error of ours is answered as a server answers it."""
    transport = httpx2.ASGITransport(create_app(with_token(services)), raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost", headers=BEARER, timeout=60) as client:
        yield client
