"""The HTTP API from the outside, for the command line."""

from __future__ import annotations

from typing import Any

import httpx2

from schemas.errors import AnabranchError, InvalidRequest, NotFound, PermanentError, TransientError

TIMEOUT_S = 300.0


class ApiClient:
    """Answers as dictionaries; problems as our errors."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self.http = httpx2.AsyncClient(base_url=self.url, timeout=httpx2.Timeout(TIMEOUT_S, connect=10))

    async def __aenter__(self) -> ApiClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.aclose()

    async def get(self, path: str, **parameters: Any) -> dict[str, Any]:
        given = {name: value for name, value in parameters.items() if value is not None}
        return dict((await self.request("GET", path, params=given)).json())

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return dict((await self.request("POST", path, json=body)).json())

    async def delete(self, path: str) -> dict[str, Any]:
        return dict((await self.request("DELETE", path)).json())

    async def text(self, path: str) -> str:
        return (await self.request("GET", path)).text

    async def request(self, method: str, path: str, **options: Any) -> httpx2.Response:
        """Raises NotFound, InvalidRequest or PermanentError for problems that the server tells of, TransientError where it does not answer."""
        try:
            response = await self.http.request(method, path, **options)
        except httpx2.HTTPError as error:
            remedy = "Start it with `anabranch up`, or name another with --server."
            raise TransientError(f"{self.url} does not answer: {error or type(error).__name__}", code="SERVER_UNREACHABLE", remedy=remedy) from error
        if response.is_error:
            raise _told(response)
        return response


def _told(response: httpx2.Response) -> AnabranchError:
    try:
        body = response.json()
    except ValueError:
        body = {}
    kind: type[AnabranchError]
    match response.status_code:
        case 404:
            kind = NotFound
        case 400 | 422:
            kind = InvalidRequest
        case status if status < 500:
            kind = PermanentError
        case _:
            kind = TransientError
    return kind(body.get("detail", response.text[:500]), code=body.get("code", f"HTTP_{response.status_code}"), remedy=body.get("remedy", ""))
