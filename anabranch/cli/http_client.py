"""Client of the HTTP API for the command line."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from typing import Any, TypeVar

import httpx2
from pydantic import BaseModel, ValidationError

from anabranch.cli.errors import to_cli_remedy
from anabranch.config.loader import suggest_scheme
from schemas.errors import AnabranchError, InvalidRequest, NotFound, PermanentError, TransientError
from schemas.validation_errors import format_invalid_fields

TIMEOUT_S = 300.0
ModelT = TypeVar("ModelT", bound=BaseModel)


class ApiClient:
    """HTTP client that returns bodies as dictionaries and raises problems as `AnabranchError`.

    `is_ephemeral`: the server stops with the command, so work that it only accepted stays pending.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        tenant: str | None = None,
        is_ephemeral: bool = False,
    ) -> None:
        self.url, self.is_ephemeral = url.rstrip("/"), is_ephemeral
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        headers |= {"X-Anabranch-Tenant": tenant} if tenant else {}
        self.http = httpx2.AsyncClient(
            base_url=self.url,
            headers=headers,
            timeout=httpx2.Timeout(TIMEOUT_S, connect=10),
            # Reading the certificates of authorities takes 30 ms, which only HTTPS needs.
            verify=not self.url.startswith("http:"),
        )

    async def __aenter__(self) -> ApiClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.aclose()

    async def get(self, path: str, **parameters: Any) -> dict[str, Any]:
        query = {name: value for name, value in parameters.items() if value is not None}
        return self._read_object(await self.request("GET", path, params=query))

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return self._read_object(await self.request("POST", path, json=body))

    async def put(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return self._read_object(await self.request("PUT", path, json=body))

    async def patch(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return self._read_object(await self.request("PATCH", path, json=body))

    async def delete(self, path: str) -> dict[str, Any]:
        return self._read_object(await self.request("DELETE", path))

    def parse(self, model: type[ModelT], body: dict[str, Any]) -> ModelT:
        """Validate the body of a reply. Raises PermanentError if it does not fit the model."""
        try:
            return model.model_validate(body)
        except ValidationError as error:
            raise self._make_reply_error(format_invalid_fields(error.errors()[:1])) from error

    async def get_text(self, path: str) -> str:
        return (await self.request("GET", path)).text

    async def stream_events(
        self, path: str, body: dict[str, Any] | None = None
    ) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """Yield server-sent events as (name, data), of a POST with a body, else of a GET.

        Raises the problem of an `error` event, and as `request` does.
        """
        try:
            async with self.http.stream("POST" if body else "GET", path, json=body) as response:
                if response.is_error:
                    # A streamed response has no text before it is read.
                    await response.aread()
                    raise _parse_problem(response.status_code, response.text)
                async for name, data in _parse_events(response.aiter_lines()):
                    if name == "error":
                        raise _parse_problem(int(json.loads(data)["status"]), data)
                    yield name, json.loads(data)
        except httpx2.HTTPError as error:
            raise self._make_unreachable_error(error) from error

    async def request(self, method: str, path: str, **options: Any) -> httpx2.Response:
        """Send a request.

        Raises NotFound, InvalidRequest or PermanentError for a problem response, TransientError if
        the server is unreachable.
        """
        try:
            response = await self._send_with_retry(method, path, options)
        except httpx2.InvalidURL as error:
            raise InvalidRequest(
                f"Invalid path {path!r}: {error}.", remedy="Check the name for invalid characters."
            ) from error
        except httpx2.HTTPError as error:
            raise self._make_unreachable_error(error) from error
        if response.is_error:
            raise _parse_problem(response.status_code, response.text)
        return response

    async def _send_with_retry(
        self, method: str, path: str, options: dict[str, Any]
    ) -> httpx2.Response:
        # The server may close a kept-alive connection just as it is reused: GET is safe to send
        # again.
        try:
            return await self.http.request(method, path, **options)
        except (httpx2.ReadError, httpx2.WriteError, httpx2.RemoteProtocolError):
            if method != "GET":
                raise
        return await self.http.request(method, path, **options)

    def _read_object(self, response: httpx2.Response) -> dict[str, Any]:
        try:
            body = response.json()
        except ValueError as error:
            raise self._make_reply_error("it is not JSON") from error
        if not isinstance(body, dict):
            raise self._make_reply_error("it is not a JSON object")
        return body

    def _make_reply_error(self, reason: str) -> PermanentError:
        return PermanentError(
            f"Unexpected reply from {self.url}: {reason}.",
            code="UNEXPECTED_REPLY",
            remedy="Check the URL, and that the server has the version of this command "
            "(`anabranch version`).",
        )

    def _make_unreachable_error(self, error: httpx2.HTTPError) -> TransientError:
        remedy = (
            suggest_scheme(self.url)
            or "Start it with `anabranch up`, or give the URL of another one with --server."
        )
        return TransientError(
            f"{self.url} does not answer: {str(error) or type(error).__name__}",
            code="SERVER_UNREACHABLE",
            remedy=remedy,
        )


async def _parse_events(lines: AsyncIterator[str]) -> AsyncIterator[tuple[str, str]]:
    """Yield names and data (WHATWG HTML, section 9.2). The server sends one data line per event."""
    name = ""
    async for line in lines:
        if line.startswith("event:"):
            name = line.removeprefix("event:").strip()
        elif line.startswith("data:"):
            yield name, line.removeprefix("data:").strip()


def _parse_problem(status: int, text: str) -> AnabranchError:
    try:
        body = dict(json.loads(text))
    except (ValueError, TypeError):
        body = {}
    error_class: type[AnabranchError]
    match status:
        case 404:
            error_class = NotFound
        case 400 | 422:
            error_class = InvalidRequest
        case _ if status < 500:
            error_class = PermanentError
        case _:
            error_class = TransientError
    code = str(body.get("code", f"HTTP_{status}"))
    # Command-line users see options, not body fields.
    detail = re.sub(r"(^|; )body(\.|: )", r"\1", str(body.get("detail", text[:500])))
    return error_class(detail, code=code, remedy=to_cli_remedy(code, body.get("remedy", "")))
