"""Client for OpenAI-compatible servers (OpenAI, Azure OpenAI, vLLM).

The only user of the `openai` library.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Literal, Protocol, TypeVar

import httpx2
import openai
from pydantic import BaseModel, ConfigDict, ValidationError

from engines.bounded_body import (
    DECODABLE_HEADERS,
    BodyTooLarge,
    UndecodableBody,
    bound_replies,
)
from engines.resilience import ResilientCaller, ServerCallError
from engines.server_settings import ServerRetryPolicy, ServerSettings
from schemas.batching import CALLER_ABANDONED
from schemas.errors import ConfigurationError, PermanentError, format_invalid_fields
from schemas.ports.engines import ChatUsage
from schemas.ports.metering import MeteredCall, PlannedCall, meter_call

TokenKind = Literal["input", "output"]
USAGE_FIELDS: dict[TokenKind, str] = {"input": "prompt_tokens", "output": "completion_tokens"}
# Counts of this size are a gateway's error and would distort the metrics.
MAX_TOKEN_COUNT = 2**31
MAX_REPLY_BYTES = 64 * 2**20
STREAM_TIMEOUT_FACTOR = 10
"""A stream may take this many times `timeout_s`, which still bounds each pause in it."""
_END_OF_STREAM = object()
# Timeout, conflict, too early, too many requests: a retry may succeed.
BUSY_STATUSES = frozenset({408, 409, 425, 429})
# A gateway timed out or lost the model's reply: the model may have worked.
UNKNOWN_OUTCOME_STATUSES = frozenset({408, 502, 504})
CONFIGURATION_ERROR_CODES = {
    401: "ENGINE_KEY_REFUSED",
    403: "ENGINE_KEY_REFUSED",
    404: "ENGINE_NOT_FOUND",
}


class StreamAccumulator(Protocol):
    """Collects the events of one streamed reply, JSON objects, in order."""

    @property
    def is_complete(self) -> bool:
        """False if the stream ended too early."""

    def add_event(self, event: Mapping[str, Any], /) -> None: ...


AccumulatorT = TypeVar("AccumulatorT", bound=StreamAccumulator)


class OpenAIServer:
    """Posts JSON to one server and returns JSON. Meters every request, retries included.

    The input of a request is bounded by its bytes, since every token of a tokenizer stands for at
    least one byte; `extra_input_tokens` are those that the server adds, such as a question that it
    repeats for each passage.

    Raises EngineUnavailable if the server does not answer, refuses the key or does not know the
    model, and PermanentError (ENGINE_REJECTED_INPUT) if it rejects the input.
    """

    def __init__(
        self, settings: ServerSettings, retry_policy: ServerRetryPolicy | None = None
    ) -> None:
        self.model, self.kind = settings.model, settings.kind
        self._address, self._timeout_s = settings.base_url, settings.timeout_s
        self._api_key = settings.api_key
        self._client = _create_client(settings)
        self._instrumentation = settings.instrumentation
        self._caller = ResilientCaller(settings.base_url, retry_policy, settings.instrumentation)

    async def post(
        self,
        path: str,
        body: Mapping[str, Any],
        task: str,
        *,
        max_output_tokens: int = 0,
        extra_input_tokens: int = 0,
    ) -> dict[str, Any]:
        body = {"model": self.model, **body}
        call = _plan_call(task, body, max_output_tokens, extra_input_tokens)
        return await self._caller.call(lambda: self._post(path, body, call))

    async def post_stream(
        self,
        path: str,
        body: Mapping[str, Any],
        create_accumulator: Callable[[], AccumulatorT],
        task: str,
        *,
        max_output_tokens: int,
    ) -> AccumulatorT:
        """Feed the server-sent events to an accumulator as they arrive.

        Each retry starts with a new accumulator.
        """
        stream_body = {
            "model": self.model,
            **body,
            "stream": True,
            # Without this option, servers stream no token counts.
            "stream_options": {"include_usage": True},
        }
        call = _plan_call(task, stream_body, max_output_tokens)
        return await self._caller.call(
            lambda: self._stream(path, stream_body, create_accumulator(), call)
        )

    async def close(self) -> None:
        await self._client.close()

    async def _post(self, path: str, body: Mapping[str, Any], call: PlannedCall) -> dict[str, Any]:
        with meter_call(call) as metered, self._translate_errors(metered, self._timeout_s):
            # The client's own limit is one of pauses between bytes.
            async with asyncio.timeout(self._timeout_s):
                text = await self._client.post(
                    path,
                    cast_to=str,
                    body=body,
                    options={"headers": {"Accept": "application/json"}},
                )
            reply = _require_object(json.loads(text))
            self._record_usage(reply, metered)
        return reply

    async def _stream(
        self, path: str, body: Mapping[str, Any], accumulator: AccumulatorT, call: PlannedCall
    ) -> AccumulatorT:
        timeout_s = self._timeout_s * STREAM_TIMEOUT_FACTOR
        with meter_call(call) as metered, self._translate_errors(metered, timeout_s):
            async with (
                asyncio.timeout(timeout_s),
                await self._client.post(
                    path,
                    cast_to=object,
                    body=body,
                    stream=True,
                    stream_cls=openai.AsyncStream[object],
                ) as events,
            ):
                try:
                    await _accumulate(
                        events, accumulator, partial(self._record_usage, metered=metered)
                    )
                # Also on cancellation, which would otherwise leave the connection open.
                except BaseException:
                    await _close_stream(events)
                    raise
        # A proxy may end a stream early without an error.
        if not accumulator.is_complete:
            raise self._make_broken_reply_error("ended its reply too early")
        return accumulator

    def _record_usage(self, reply: Mapping[str, Any], metered: MeteredCall) -> None:
        # Called for every event of a stream: one of them carries the usage.
        metered.usage = read_usage(reply) or metered.usage
        for kind in USAGE_FIELDS:
            if token_count := read_token_count(reply, kind):
                self._instrumentation.record_tokens(self.model, kind, token_count)

    @contextmanager
    def _translate_errors(self, metered: MeteredCall, timeout_s: float) -> Iterator[None]:
        try:
            yield
        except (BodyTooLarge, UndecodableBody) as error:
            raise self._make_unusable_reply_error(error) from error
        except TimeoutError as error:
            raise ServerCallError(f"{self._address} did not answer in {timeout_s:g} s.") from error
        # From specific to general: APIError is the base class of the other two.
        except openai.APIStatusError as error:
            metered.is_served = error.status_code in UNKNOWN_OUTCOME_STATUSES
            raise self._translate_status_error(error) from error
        except openai.APIConnectionError as error:
            if isinstance(error.__cause__, BodyTooLarge | UndecodableBody):
                raise self._make_unusable_reply_error(error.__cause__) from error
            metered.is_served = not isinstance(
                error.__cause__, httpx2.ConnectError | httpx2.ConnectTimeout
            )
            raise ServerCallError(f"{self._address} did not answer: {error}.") from error
        except openai.APIError as error:
            raise ServerCallError(
                f"{self._address} failed in the middle of its reply: {self._quote(error.message)}."
            ) from error
        # json raises RecursionError for deeply nested replies.
        except (ValueError, RecursionError) as error:
            raise self._make_broken_reply_error("sent a reply that is not a JSON object") from error

    def _make_unusable_reply_error(self, error: Exception) -> ServerCallError:
        # Not retried: it would transfer the same bytes again.
        return ServerCallError(
            f"The reply of {self._address} cannot be read: {error}.",
            code="ENGINE_BROKEN_ANSWER",
            is_retryable=False,
        )

    def _make_broken_reply_error(self, problem: str) -> ServerCallError:
        return ServerCallError(f"{self._address} {problem}.", code="ENGINE_BROKEN_ANSWER")

    def _quote(self, message: object) -> str:
        """Return the start of the server's message, which may repeat the key, without it."""
        text = str(message)
        return (text.replace(self._api_key, "***") if self._api_key else text)[:500]

    def _translate_status_error(
        self, error: openai.APIStatusError
    ) -> ServerCallError | PermanentError:
        status = error.status_code
        message = error.body.get("message") if isinstance(error.body, dict) else None
        detail = f"{self._address} answered {status}: {self._quote(message or error.message)}"
        if status >= 500 or status in BUSY_STATUSES:
            return ServerCallError(
                detail, retry_after=_parse_retry_after(error.response.headers.get("retry-after"))
            )
        if 300 <= status < 400:
            # Not followed: texts would go where the operator has not sent them.
            return ServerCallError(
                f"{self._address} redirects ({status}).",
                code="ENGINE_NOT_FOUND",
                remedy="Set the final address of the server: redirects are not followed.",
                is_retryable=False,
            )
        if status in CONFIGURATION_ERROR_CODES:
            return ServerCallError(
                detail,
                code=CONFIGURATION_ERROR_CODES[status],
                remedy=(
                    f"Check the key, the model name ({self.model}) and the address of this server."
                ),
                is_retryable=False,
            )
        return PermanentError(
            detail,
            code="ENGINE_REJECTED_INPUT",
            remedy="The server rejected this input; its message names the reason.",
        )


def _plan_call(
    task: str, body: Mapping[str, Any], max_output_tokens: int, extra_input_tokens: int = 0
) -> PlannedCall:
    n_bytes = len(json.dumps(body, ensure_ascii=False).encode("utf-8", "surrogatepass"))
    return PlannedCall(task, body["model"], n_bytes + extra_input_tokens, max_output_tokens)


def read_usage(reply: Mapping[str, Any]) -> ChatUsage | None:
    """Return the tokens that a reply reports, or None if it reports none."""
    usage = ChatUsage(read_token_count(reply, "input"), read_token_count(reply, "output"))
    return usage if usage != ChatUsage() else None


def read_token_count(reply: Mapping[str, Any], kind: TokenKind) -> int:
    """Return the token count in a reply, or 0 if it is missing or implausible."""
    usage = reply.get("usage")
    token_count = usage.get(USAGE_FIELDS[kind]) if isinstance(usage, dict) else None
    if usage is None and isinstance(meta := reply.get("meta"), dict):
        # Cohere's place.
        billed = meta.get("billed_units")
        token_count = billed.get(f"{kind}_tokens") if isinstance(billed, dict) else None
    # Some rerank servers report the sum alone.
    if kind == "input" and token_count is None and isinstance(usage, dict):
        token_count = usage.get("total_tokens")
    return token_count if isinstance(token_count, int) and 0 < token_count < MAX_TOKEN_COUNT else 0


def _create_client(settings: ServerSettings) -> openai.AsyncOpenAI:
    http_client = openai.DefaultAsyncHttpxClient(
        follow_redirects=False,
        headers=DECODABLE_HEADERS,
        event_hooks={"response": [bound_replies(MAX_REPLY_BYTES)]},
    )
    shared: dict[str, Any] = {
        "api_key": settings.api_key or "none",  # required even for servers without one
        "timeout": settings.timeout_s,
        # ResilientCaller retries, and counts failures for its circuit.
        "max_retries": 0,
        "http_client": http_client,
    }
    if settings.kind != "azure":
        return openai.AsyncOpenAI(base_url=settings.base_url, **shared)
    if not settings.api_version:
        raise ConfigurationError(
            "The Azure server has no API version.",
            remedy="Set ANABRANCH_CHAT__API_VERSION, or that of the engine's section.",
        )
    return openai.AsyncAzureOpenAI(
        azure_endpoint=settings.base_url, api_version=settings.api_version, **shared
    )


async def _accumulate(
    events: AsyncIterator[object],
    accumulator: StreamAccumulator,
    record_usage: Callable[[Mapping[str, Any]], None],
) -> None:
    is_started = False
    try:
        while (raw_event := await anext(events, _END_OF_STREAM)) is not _END_OF_STREAM:
            is_started, event = True, _require_object(raw_event)
            record_usage(event)
            accumulator.add_event(event)
    except asyncio.CancelledError as error:
        # Once events arrive the server works: a cancellation then must not count against its
        # circuit.
        raise asyncio.CancelledError(CALLER_ABANDONED) if is_started else error from None


async def _close_stream(events: openai.AsyncStream[object]) -> None:
    """Close the stream and exhaust it."""
    await events.close()
    # The client nests async generators, which the garbage collector would finalize in any order.
    with suppress(Exception):
        while await anext(events, _END_OF_STREAM) is not _END_OF_STREAM:
            pass


def _require_object(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"expected a JSON object, got {type(value).__name__}")
    return value


def _parse_retry_after(header: str | None) -> float | None:
    """Parse the seconds of a Retry-After header (RFC 9110).

    Return None for dates, which the back-off covers.
    """
    try:
        value = float(header or "nan")
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


class _ReplyModel(BaseModel):
    """Part of a chat completion, whole or streamed. A gateway may answer 200 with anything."""

    model_config = ConfigDict(strict=True, frozen=True)


class ChatMessage(_ReplyModel):
    content: str | None = None
    refusal: str | None = None


class ChatChoice(_ReplyModel):
    message: ChatMessage | None = None
    delta: ChatMessage | None = None
    finish_reason: str | None = None

    @property
    def message_or_delta(self) -> ChatMessage:
        return self.message or self.delta or ChatMessage()


class ChatCompletion(_ReplyModel):
    choices: list[ChatChoice] | None = None

    @property
    def first_choice(self) -> ChatChoice:
        return next(iter(self.choices or ()), ChatChoice())


def parse_completion(reply: Mapping[str, Any]) -> ChatCompletion:
    """Validate a reply or a stream event. Raises ServerCallError (ENGINE_BROKEN_ANSWER)."""
    try:
        return ChatCompletion.model_validate(reply)
    except ValidationError as error:
        problem = format_invalid_fields(error.errors(include_input=False)[:1])
        raise ServerCallError(
            f"The chat server sent an invalid completion: {problem}.", code="ENGINE_BROKEN_ANSWER"
        ) from error
