"""Client of the HTTP API for the command line."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import httpx2

from anabranch.cli.errors import to_cli_remedy
from anabranch.http_transport import TIMEOUT_S, ApiError, AsyncTransport, Request
from schemas.errors import AnabranchError, InvalidRequest, NotFound, PermanentError, TransientError


class ApiClient(AsyncTransport):
    """HTTP client that returns bodies as dictionaries.

    It raises NotFound, InvalidRequest or PermanentError for a problem response, and TransientError
    if the server is unreachable. `is_ephemeral`: the server stops with the command, so work that it
    only accepted stays pending.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        tenant: str | None = None,
        is_ephemeral: bool = False,
    ) -> None:
        super().__init__(url, token, tenant=tenant, timeout_s=TIMEOUT_S)
        self.is_ephemeral = is_ephemeral

    async def call(
        self, method: str, path: str, body: dict[str, Any] | None = None, **parameters: Any
    ) -> dict[str, Any]:
        """Return the body of the reply. Parameters of the query that are None are left out."""
        # None: an empty dictionary would remove a query from the path.
        query = _drop_unset(parameters) or None
        return self.read_object(await self.request(method, path, params=query, json=body))

    async def get(self, path: str, **parameters: Any) -> dict[str, Any]:
        return await self.call("GET", path, **parameters)

    async def post(self, path: str, body: dict[str, Any], **parameters: Any) -> dict[str, Any]:
        return await self.call("POST", path, body, **parameters)

    async def get_text(self, path: str) -> str:
        return (await self.request("GET", path)).text

    async def stream_text(self, path: str, **parameters: Any) -> AsyncIterator[str]:
        """Yield the text of a response, piece by piece."""
        query = _drop_unset(parameters)
        async with self.open_stream(Request("GET", path, {"params": query})) as response:
            async for text in response.aiter_text():
                yield text

    async def request(self, method: str, path: str, **options: Any) -> httpx2.Response:
        return await self.send(Request(method, path, options))

    def follow(
        self, path: str, body: dict[str, Any] | None = None
    ) -> AsyncGenerator[tuple[str, dict[str, Any]], None]:
        """Yield server-sent events as (name, data), of a POST with a body, else of a GET."""
        return self.stream_events(Request("POST" if body else "GET", path, {"json": body}))

    def to_exception(self, error: ApiError) -> AnabranchError:
        error_class: type[AnabranchError]
        match error.status:
            case 404:
                error_class = NotFound
            case _ if error.status in (400, 422) or error.code == InvalidRequest.code:
                error_class = InvalidRequest
            case _ if 0 < error.status < 500:
                error_class = PermanentError
            case _:
                error_class = TransientError
        # Command-line users see options, not body fields.
        detail = re.sub(r"(^|; )body(\.|: )", r"\1", error.detail)
        return error_class(detail, code=error.code, remedy=to_cli_remedy(error.code, error.remedy))


def _drop_unset(parameters: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in parameters.items() if value is not None}
