"""Transport of the HTTP API's clients: requests, errors and server-sent events."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self, TypeVar

import httpx2
from pydantic import BaseModel, ValidationError

from schemas.errors import AnabranchError, format_invalid_fields, join_sentences

DEFAULT_URL = "http://127.0.0.1:8420"
TIMEOUT_S = 300.0
UNREACHABLE, UNEXPECTED_REPLY = "SERVER_UNREACHABLE", "UNEXPECTED_REPLY"
# The server may close a kept-alive connection just as it is reused.
_CLOSED_CONNECTION = (httpx2.ReadError, httpx2.WriteError, httpx2.RemoteProtocolError)
ModelT = TypeVar("ModelT", bound=BaseModel)


class ApiError(AnabranchError):
    """A call failed. `status` is that of the HTTP response, 0 without one."""

    def __init__(
        self, detail: str, *, code: str | None = None, remedy: str | None = None, status: int = 0
    ) -> None:
        super().__init__(detail, code=code, remedy=remedy)
        self.status = status

    def __str__(self) -> str:
        return f"{join_sentences(self.detail, self.remedy)} [{self.code}]"

    def __reduce__(self) -> tuple[object, ...]:
        return (*super().__reduce__(), {"status": self.status})


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request. `options` are those of httpx2: `params`, `json`, `data`, `files`."""

    method: str
    path: str
    options: Mapping[str, Any] = field(default_factory=dict)


class EventParser:
    """Parses server-sent events (WHATWG HTML, section 9.2), of one line of data each."""

    name = ""

    def feed(self, line: str) -> tuple[str, dict[str, Any]] | None:
        """Return the event that the line completes. Raises ApiError for an `error` event."""
        if line.startswith("event:"):
            self.name = line.removeprefix("event:").strip()
        if not line.startswith("data:"):
            return None
        data = line.removeprefix("data:").strip()
        if self.name == "error":
            raise parse_problem(0, data)
        try:
            return self.name, dict(json.loads(data))
        except (ValueError, TypeError, RecursionError) as error:
            raise ApiError(
                f"The stream breaks off in an event {self.name!r}, which is not a JSON object.",
                code=UNREACHABLE,
                remedy="Repeat the call.",
            ) from error


class Transport:
    """Address and credentials of a server, and the errors of its replies."""

    def __init__(
        self,
        url: str = DEFAULT_URL,
        token: str | None = None,
        *,
        tenant: str | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self.url = url.rstrip("/")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.settings: dict[str, Any] = {
            "base_url": self.url,
            "headers": headers | ({"X-Anabranch-Tenant": tenant} if tenant else {}),
            "timeout": httpx2.Timeout(timeout_s, connect=10),
            # Reading the certificates of authorities takes 30 ms, which only HTTPS needs.
            "verify": not self.url.startswith("http:"),
        }

    def to_exception(self, error: ApiError) -> AnabranchError:
        """Return what to raise for an error."""
        return error

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        try:
            yield
        except httpx2.InvalidURL as error:
            raise self._make_request_error(f"URL: {error}") from error
        except httpx2.LocalProtocolError:
            # Without its cause, which repeats the value of the header: it may be the token.
            raise self._make_request_error("token, tenant or idempotency key") from None
        except UnicodeError as error:
            raise self._make_request_error(f"token, name or text: {error}") from error
        except httpx2.HTTPError as error:
            raise self.to_exception(self._make_unreachable_error(error)) from error
        except ApiError as error:
            raise self.to_exception(error) from error.__cause__

    def read(self, model: type[ModelT], response: httpx2.Response) -> ModelT:
        return self.parse(model, self.read_object(response))

    def parse(self, model: type[ModelT], body: dict[str, Any]) -> ModelT:
        """Validate a body. Fields that a later version of the server added are ignored."""
        try:
            return model.model_validate(body, extra="ignore")
        except ValidationError as error:
            raise self._make_reply_error(format_invalid_fields(error.errors()[:1])) from error

    def read_object(self, response: httpx2.Response) -> dict[str, Any]:
        try:
            body = response.json()
        except (ValueError, RecursionError) as error:
            raise self._make_reply_error("it is not JSON") from error
        if not isinstance(body, dict):
            raise self._make_reply_error("it is not a JSON object")
        return body

    def _make_request_error(self, invalid: str) -> AnabranchError:
        return self.to_exception(
            ApiError(
                f"Invalid {invalid}.",
                code="INVALID_REQUEST",
                remedy="Remove line breaks and characters that cannot be sent.",
            )
        )

    def _make_reply_error(self, reason: str) -> AnabranchError:
        return self.to_exception(
            ApiError(
                f"Unexpected reply from {self.url}: {reason}.",
                code=UNEXPECTED_REPLY,
                remedy="Check the URL, and that client and server have the same version.",
                status=200,
            )
        )

    def _make_unreachable_error(self, error: httpx2.HTTPError) -> ApiError:
        return ApiError(
            f"{self.url} does not answer: {str(error) or type(error).__name__}",
            code=UNREACHABLE,
            remedy="Start it with `anabranch up`, or give the URL of another one."
            if "://" in self.url
            else f"Use http://{self.url}.",
        )


def parse_problem(status: int, text: str) -> ApiError:
    """Return the error of a problem response (RFC 9457), or of any other body."""
    try:
        body = dict(json.loads(text))
        status = status or int(body.get("status", 500))
    except (ValueError, TypeError, RecursionError):
        body, status = {}, status or 500
    return ApiError(
        str(body.get("detail", text[:500])),
        code=str(body.get("code", f"HTTP_{status}")),
        remedy=str(body.get("remedy", "")),
        status=status,
    )


def check_response(response: httpx2.Response) -> httpx2.Response:
    if response.is_error:
        raise parse_problem(response.status_code, response.text)
    return response


class SyncTransport(Transport):
    @cached_property
    def http(self) -> httpx2.Client:
        return httpx2.Client(**self.settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        # An invalid URL or token fails when `http` is made.
        if "http" in self.__dict__:
            self.http.close()

    def send(self, request: Request) -> httpx2.Response:
        """Send a request; a GET again if its connection was closed. Raises ApiError."""
        with self.translate_errors():
            try:
                response = self.http.request(request.method, request.path, **request.options)
            except _CLOSED_CONNECTION:
                if request.method != "GET":
                    raise
                response = self.http.request(request.method, request.path, **request.options)
            return check_response(response)

    def stream_events(self, request: Request) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield name and data of server-sent events. Raises ApiError, also for an `error` event."""
        parser = EventParser()
        with (
            self.translate_errors(),
            self.http.stream(request.method, request.path, **request.options) as response,
        ):
            if response.is_error:
                # A streamed response has no text before it is read.
                response.read()
            for line in check_response(response).iter_lines():
                if (event := parser.feed(line)) is not None:
                    yield event


class AsyncTransport(Transport):
    @cached_property
    def http(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(**self.settings)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        if "http" in self.__dict__:
            await self.http.aclose()

    async def send(self, request: Request) -> httpx2.Response:
        """Send a request; a GET again if its connection was closed. Raises ApiError."""
        with self.translate_errors():
            try:
                response = await self.http.request(request.method, request.path, **request.options)
            except _CLOSED_CONNECTION:
                if request.method != "GET":
                    raise
                response = await self.http.request(request.method, request.path, **request.options)
            return check_response(response)

    @asynccontextmanager
    async def open_stream(self, request: Request) -> AsyncIterator[httpx2.Response]:
        """Send a request, and leave its body to be read piece by piece. Raises ApiError."""
        with self.translate_errors():
            async with self.http.stream(
                request.method, request.path, **request.options
            ) as response:
                if response.is_error:
                    # A streamed response has no text before it is read.
                    await response.aread()
                yield check_response(response)

    async def stream_events(
        self, request: Request
    ) -> AsyncGenerator[tuple[str, dict[str, Any]], None]:
        """Yield name and data of server-sent events. Raises ApiError, also for an `error` event."""
        parser = EventParser()
        async with self.open_stream(request) as response:
            async for line in response.aiter_lines():
                if (event := parser.feed(line)) is not None:
                    yield event
