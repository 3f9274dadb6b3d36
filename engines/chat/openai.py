"""Structured output of chat models on OpenAI-compatible servers, validated by JSON Schema."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from itertools import count
from typing import Any

import jsonschema

from engines.openai_server import OpenAIServer, parse_completion, read_token_count
from engines.resilience import ServerCallError
from engines.server_settings import ServerRetryPolicy, ServerSettings
from schemas.errors import InvalidModelOutput
from schemas.ports.engines import DEFAULT_CHAT_OPTIONS, ChatOptions, ChatReply, ChatUsage, OnDelta


class StreamedCompletion:
    """StreamAccumulator of one completion, complete when a finish reason has arrived."""

    def __init__(self, on_delta: Callable[[str], None]) -> None:
        self._on_delta, self._content, self._refusal = on_delta, "", ""
        self._model, self._finish_reason = "", ""
        self._usage: Mapping[str, Any] = {}

    @property
    def is_complete(self) -> bool:
        return bool(self._finish_reason)

    def add_event(self, event: Mapping[str, Any]) -> None:
        """Add one event. Raises ServerCallError if it is invalid."""
        self._model = event.get("model") or self._model
        self._usage = event.get("usage") or self._usage
        for choice in parse_completion(event).choices or ():
            self._refusal += choice.message_or_delta.refusal or ""
            self._finish_reason = choice.finish_reason or self._finish_reason
            if delta := choice.message_or_delta.content:
                self._content += delta
                _check_length(self._content)
                self._on_delta(delta)

    def to_reply(self) -> dict[str, Any]:
        message = {"role": "assistant", "content": self._content, "refusal": self._refusal or None}
        return {
            "model": self._model,
            "choices": [{"index": 0, "message": message, "finish_reason": self._finish_reason}],
            "usage": self._usage,
        }


MAX_CHARACTERS = 512 * 1024
"""Maximum length of a reply. Validating one takes half a second, which blocks the event loop."""


def _check_length(content: str) -> None:
    if len(content) > MAX_CHARACTERS:
        problem = f"The chat server wrote more than {MAX_CHARACTERS:,} characters."
        raise ServerCallError(problem, code="ENGINE_BROKEN_ANSWER", is_retryable=False)


COMPLETIONS_PATH = "/chat/completions"
MAX_TOKENS = 4096
MAX_ATTEMPTS = 2
MAX_MODEL_NAME_LENGTH = 255


class OpenAIChat:
    """ChatModel that repeats the request once, with the error, if a reply violates the schema."""

    def __init__(
        self,
        settings: ServerSettings,
        *,
        retry_policy: ServerRetryPolicy | None = None,
        max_tokens: int = MAX_TOKENS,
    ) -> None:
        self.model = settings.model
        self._server, self._max_tokens = OpenAIServer(settings, retry_policy), max_tokens

    async def complete(
        self,
        system: str,
        user: str,
        schema: Mapping[str, Any],
        *,
        name: str,
        on_delta: OnDelta | None = None,
        options: ChatOptions = DEFAULT_CHAT_OPTIONS,
    ) -> ChatReply:
        messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
        # Attempts at a reply are numbered, so that `on_delta` can discard earlier text.
        usage, fault, numbers = ChatUsage(), "", count(1)
        max_output_tokens = options.max_tokens or self._max_tokens
        for call in range(1, MAX_ATTEMPTS + 1):
            body = self._build_body(messages, schema, name, options)
            if on_delta is None:
                reply = await self._server.post(
                    COMPLETIONS_PATH, body, name, max_output_tokens=max_output_tokens
                )
            else:
                streamed = await self._server.post_stream(
                    COMPLETIONS_PATH,
                    body,
                    lambda: StreamedCompletion(partial(on_delta, next(numbers))),
                    name,
                    max_output_tokens=max_output_tokens,
                )
                reply = streamed.to_reply()
            # Rejected replies cost tokens too.
            usage = ChatUsage(
                usage.input_tokens + read_token_count(reply, "input"),
                usage.output_tokens + read_token_count(reply, "output"),
            )
            text, fault = _extract_content(reply)
            _check_length(text)
            data, fault = (None, fault) if fault else _parse_and_validate(text, schema)
            if data is not None:
                model = reply.get("model")
                model = model[:MAX_MODEL_NAME_LENGTH] if isinstance(model, str) else ""
                return ChatReply(data, model or self.model, usage, call)
            # Show the model its reply and the error.
            remark = f"That was not valid: {fault} Answer again, as JSON that keeps to the schema."
            messages = [
                *messages,
                {"role": "assistant", "content": text},
                {"role": "user", "content": remark},
            ]
        raise InvalidModelOutput(
            f"{self.model} violated the schema '{name}': {fault}",
            calls=MAX_ATTEMPTS,
            tokens=usage.input_tokens + usage.output_tokens,
        )

    async def close(self) -> None:
        await self._server.close()

    def _build_body(
        self,
        messages: list[dict[str, str]],
        schema: Mapping[str, Any],
        name: str,
        options: ChatOptions,
    ) -> dict[str, Any]:
        response_format = {
            "type": "json_schema",
            "json_schema": {"name": name, "schema": schema, "strict": True},
        }
        is_vllm = self._server.kind == "vllm"
        # OpenAI's and Azure's reasoning models reject `max_tokens`, and a `temperature` unless the
        # profile says that its model takes one.
        max_tokens_name = "max_tokens" if is_vllm else "max_completion_tokens"
        temperature = 0.0 if is_vllm and options.temperature is None else options.temperature
        return {
            "messages": messages,
            "response_format": response_format,
            max_tokens_name: options.max_tokens or self._max_tokens,
            **({} if temperature is None else {"temperature": temperature}),
            **({"model": options.model} if options.model else {}),
        }


def _extract_content(reply: Mapping[str, Any]) -> tuple[str, str]:
    """Return the model's text and the fault in the reply, '' if there is none."""
    choice = parse_completion(reply).first_choice
    if choice.message_or_delta.refusal:
        return "", f"it refused ({choice.message_or_delta.refusal})."
    return (
        choice.message_or_delta.content or "",
        "it was cut off at the token limit." if choice.finish_reason == "length" else "",
    )


def _parse_and_validate(
    text: str, schema: Mapping[str, Any]
) -> tuple[Mapping[str, Any] | None, str]:
    try:
        data = _strip_unstorable_characters(json.loads(text))
        jsonschema.validate(data, schema)
    except (ValueError, RecursionError) as error:
        return None, f"not JSON ({error})."
    except jsonschema.ValidationError as error:
        return None, f"{error.json_path}: {error.message[:300]}."
    return (data, "") if isinstance(data, dict) else (None, "not a JSON object.")


def _strip_unstorable_characters(value: Any) -> Any:
    """Remove NUL and lone surrogates, which neither UTF-8 nor Postgres can store."""
    match value:
        case str():
            return value.encode("utf-8", "ignore").decode().replace("\0", "")
        case list():
            return [_strip_unstorable_characters(item) for item in value]
        case dict():
            return {name: _strip_unstorable_characters(item) for name, item in value.items()}
    return value
