"""Any server that speaks OpenAI's HTTP interface: OpenAI, Azure OpenAI, vLLM. The only place that knows the client library."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Literal, Protocol, TypeVar

import openai

from engines.resilience import ABANDONED, Patience, Remote, Unanswered
from engines.server_settings import ServerSettings
from schemas.errors import ConfigurationError, PermanentError

Counted = Literal["input", "output"]
COUNTED: dict[Counted, str] = {"input": "prompt_tokens", "output": "completion_tokens"}
MOST_TOKENS = 2**31
_END = object()
BUSY = frozenset({408, 409, 425, 429})
CONFIGURED = {401: "ENGINE_KEY_REFUSED", 403: "ENGINE_KEY_REFUSED", 404: "ENGINE_NOT_FOUND"}


class Gathering(Protocol):
    """Takes the events of one streamed answer, JSON objects all, in order."""

    @property
    def complete(self) -> bool:
        """False where more should have come."""

    def take(self, part: Mapping[str, Any], /) -> None: ...


G = TypeVar("G", bound=Gathering)


class OpenAIServer:
    """POSTs JSON and returns JSON. Raises EngineUnavailable when the server does not answer, refuses the key or does not know the model;
    PermanentError with code ENGINE_REJECTED_INPUT when it will not take this input."""

    def __init__(self, settings: ServerSettings, patience: Patience | None = None) -> None:
        self.model, self.kind = settings.model, settings.kind
        self._address = settings.base_url
        self._client = _client(settings)
        self._watch = settings.watch
        self._remote = Remote(settings.base_url, patience, settings.watch)

    async def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return await self._remote.call(lambda: self._post(path, {"model": self.model, **body}))

    async def post_streamed(self, path: str, body: Mapping[str, Any], begin: Callable[[], G]) -> G:
        """Server-sent events, handed to what `begin` gives while they come; a try that breaks off is void, and the next one begins anew."""
        whole = {"model": self.model, **body, "stream": True, "stream_options": {"include_usage": True}}
        return await self._remote.call(lambda: self._stream(path, whole, begin()))

    async def close(self) -> None:
        await self._client.close()

    async def _post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        with self._translating():
            text = await self._client.post(path, cast_to=str, body=body, options={"headers": {"Accept": "application/json"}})
        answer = self._parsed(text)
        self._count(answer)
        return answer

    async def _stream(self, path: str, body: Mapping[str, Any], gathering: G) -> G:
        with self._translating():
            async with await self._client.post(path, cast_to=object, body=body, stream=True, stream_cls=openai.AsyncStream[object]) as parts:
                try:
                    await _gathered(parts, gathering, self._count)
                except BaseException:
                    await _hang_up(parts)
                    raise
        if not gathering.complete:
            raise self._broken("broke off its answer")
        return gathering

    def _count(self, answer: Mapping[str, Any]) -> None:
        """As the server counts; a streamed answer tells it in one of its events."""
        for kind in COUNTED:
            if number := tokens_told(answer, kind):
                self._watch.tokens(self.model, kind, number)

    @contextmanager
    def _translating(self) -> Iterator[None]:
        try:
            yield
        except openai.APIStatusError as error:
            raise self._translated(error) from error
        except openai.APIConnectionError as error:
            raise Unanswered(f"{self._address} did not answer: {error}.") from error
        except openai.APIError as error:
            raise Unanswered(f"{self._address} failed in the middle of its answer: {error.message}.") from error
        except (ValueError, RecursionError) as error:
            raise self._broken("answered with something that is no JSON object") from error

    def _parsed(self, text: str) -> dict[str, Any]:
        with self._translating():
            return _object(json.loads(text))

    def _broken(self, what: str) -> Unanswered:
        return Unanswered(f"{self._address} {what}.", code="ENGINE_BROKEN_ANSWER")

    def _translated(self, error: openai.APIStatusError) -> Unanswered | PermanentError:
        status, said = error.status_code, f"{self._address} answered {error.status_code}: {_message(error)}"
        if status >= 500 or status in BUSY:
            return Unanswered(said, retry_after=_seconds(error.response.headers.get("retry-after")))
        if status in CONFIGURED:
            return Unanswered(
                said, code=CONFIGURED[status], remedy=f"Check the key, the model name ({self.model}) and the address of this server.", again=False
            )
        return PermanentError(said, code="ENGINE_REJECTED_INPUT", remedy="The server will not take this input; see what it says.")


def tokens_told(answer: Mapping[str, Any], kind: Counted) -> int:
    """As the server counts them; 0 where it says nothing, or no number of tokens."""
    usage = answer.get("usage")
    number = usage.get(COUNTED[kind]) if isinstance(usage, dict) else None
    return number if isinstance(number, int) and 0 < number < MOST_TOKENS else 0


def _client(settings: ServerSettings) -> openai.AsyncOpenAI:
    key = settings.api_key or "none"
    if settings.kind != "azure":
        return openai.AsyncOpenAI(base_url=settings.base_url, api_key=key, timeout=settings.timeout_s, max_retries=0)
    if not settings.api_version:
        raise ConfigurationError("An Azure server needs an API_VERSION.", remedy="Set ANABRANCH_CHAT__API_VERSION (or that of the engine concerned).")
    return openai.AsyncAzureOpenAI(azure_endpoint=settings.base_url, api_key=key, api_version=settings.api_version, timeout=settings.timeout_s, max_retries=0)


async def _gathered(parts: AsyncIterator[object], gathering: Gathering, count: Callable[[Mapping[str, Any]], None]) -> None:
    begun = False
    try:
        while (part := await anext(parts, _END)) is not _END:
            begun, found = True, _object(part)
            count(found)
            gathering.take(found)
    except asyncio.CancelledError as error:
        raise asyncio.CancelledError(ABANDONED) if begun else error from None


async def _hang_up(parts: openai.AsyncStream[object]) -> None:
    """Closed, and read to its end: the client's generators, left in the middle, would be ended one by one whenever they are found, in each other's way."""
    await parts.close()
    with suppress(Exception):
        while await anext(parts, _END) is not _END:
            pass


def _object(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"a JSON {type(value).__name__}, not an object")
    return value


def _message(error: openai.APIStatusError) -> str:
    body = error.body
    found = body.get("message") if isinstance(body, dict) else None
    return str(found or error.message)[:500]


def _seconds(header: str | None) -> float | None:
    """Of a Retry-After header (RFC 9110); dates are left to the back-off."""
    try:
        value = float(header or "nan")
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None
