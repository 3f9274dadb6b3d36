"""Single calls of the HTTP API."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from anabranch.cli.options import RemoteOptions


def format_time(moment: datetime | None) -> str | None:
    """Format a time as the API accepts it; the API reads times without zone as UTC."""
    return moment.isoformat() if moment else None


def get(path: str, common: RemoteOptions, **parameters: Any) -> dict[str, Any]:
    from anabranch.cli.server_connection import open_client

    async def call_api() -> dict[str, Any]:
        async with open_client(common) as client:
            return await client.get(path, **parameters)

    return asyncio.run(call_api())


LONG_TIMEOUT_S = 3600.0
"""For requests that run hundreds of queries before the server responds."""


def post(
    path: str,
    body: dict[str, Any],
    common: RemoteOptions,
    *,
    stages: Sequence[str] = ("all",),
    timeout_s: float | None = None,
) -> dict[str, Any]:
    """Send a POST request. If no server runs, a temporary one runs `stages` to process it."""
    from httpx2 import Timeout

    from anabranch.cli.server_connection import open_client

    async def call_api() -> dict[str, Any]:
        async with open_client(common, stages=stages) as client:
            if timeout_s is not None:
                client.http.timeout = Timeout(timeout_s, connect=10)
            return await client.post(path, body)

    return asyncio.run(call_api())
