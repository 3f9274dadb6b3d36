"""Single calls of the HTTP API."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from anabranch.cli.options import QUERY_STAGES, RemoteOptions

if TYPE_CHECKING:
    from anabranch.cli.http_client import ApiClient

T = TypeVar("T")
LONG_TIMEOUT_S = 3600.0
"""For requests that run hundreds of queries before the server responds."""


def format_time(moment: datetime | None) -> str | None:
    """Format a time as the API accepts it; the API reads times without zone as UTC."""
    return moment.isoformat() if moment else None


def call_api(
    common: RemoteOptions,
    work: Callable[[ApiClient], Awaitable[T]],
    *,
    stages: Sequence[str] = QUERY_STAGES,
    timeout_s: float | None = None,
) -> T:
    """Run `work` with a client. If no server runs, a temporary one runs `stages`."""
    from httpx2 import Timeout

    from anabranch.cli.server_connection import open_client

    async def run() -> T:
        async with open_client(common, stages=stages) as client:
            if timeout_s is not None:
                client.http.timeout = Timeout(timeout_s, connect=10)
            return await work(client)

    return asyncio.run(run())


def get(path: str, common: RemoteOptions, **parameters: Any) -> dict[str, Any]:
    return call_api(common, lambda client: client.get(path, **parameters))


def post(
    path: str,
    body: dict[str, Any],
    common: RemoteOptions,
    *,
    stages: Sequence[str] = ("all",),
    timeout_s: float | None = None,
    **parameters: Any,
) -> dict[str, Any]:
    """Send a POST request. If no server runs, a temporary one runs `stages` to process it."""
    return call_api(
        common,
        lambda client: client.post(path, body, **parameters),
        stages=stages,
        timeout_s=timeout_s,
    )
