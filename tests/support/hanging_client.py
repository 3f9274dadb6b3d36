"""A client of an application in this process that disconnects before the response."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from starlette.types import ASGIApp, Message


@asynccontextmanager
async def send_and_disconnect(
    app: ASGIApp, path: str, body: dict[str, Any], credential: str
) -> AsyncIterator[Callable[[], None]]:
    """Send a POST request; the yielded function ends its connection."""
    messages = asyncio.Queue[Message]()
    request = {"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}
    messages.put_nowait(request)
    headers = {
        "host": "localhost",
        "authorization": f"Bearer {credential}",
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
    }
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }

    async def send(message: Message) -> None:
        """Nobody reads the response."""

    serving = asyncio.create_task(app(scope, messages.get, send))  # type: ignore[arg-type]
    try:
        yield lambda: messages.put_nowait({"type": "http.disconnect"})
    finally:
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving
