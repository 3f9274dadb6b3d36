"""Structured answers of a chat model on an OpenAI-compatible server, checked against the schema before anyone sees them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import jsonschema

from engines.chat.streamed import Drafts
from engines.completions import completion
from engines.openai_server import OpenAIServer, tokens_told
from engines.resilience import Patience
from engines.server_settings import ServerSettings
from schemas.errors import ModelOutput
from schemas.ports.engines import ChatReply, ChatUsage, Hear

PATH = "/chat/completions"
MAX_TOKENS = 4096
TRIES = 2
LONGEST_MODEL = 255


class OpenAIChat:
    """Asks once more, saying what was wrong, when an answer does not keep to the schema."""

    def __init__(self, settings: ServerSettings, *, patience: Patience | None = None, max_tokens: int = MAX_TOKENS) -> None:
        self.model = settings.model
        self._server, self._max_tokens = OpenAIServer(settings, patience), max_tokens

    async def ask(self, system: str, user: str, schema: Mapping[str, Any], *, name: str, hear: Hear | None = None) -> ChatReply:
        messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
        usage, fault, drafts = ChatUsage(), "", Drafts(hear) if hear else None
        for call in range(1, TRIES + 1):
            reply = await self._asked(self._body(messages, schema, name), drafts)
            usage = _sum(usage, reply)
            text, fault = _content(reply)
            data, fault = (None, fault) if fault else _checked(text, schema)
            if data is not None:
                return ChatReply(data, _named(reply) or self.model, usage, call)
            messages = [
                *messages,
                {"role": "assistant", "content": text},
                {"role": "user", "content": f"That was not valid: {fault} Answer again, as JSON that keeps to the schema."},
            ]
        raise ModelOutput(f"{self.model} did not keep to the schema {name}: {fault}", calls=TRIES, tokens=usage.input_tokens + usage.output_tokens)

    async def close(self) -> None:
        await self._server.close()

    async def _asked(self, body: Mapping[str, Any], drafts: Drafts | None) -> Mapping[str, Any]:
        if drafts is None:
            return await self._server.post(PATH, body)
        return (await self._server.post_streamed(PATH, body, drafts.begin)).reply()

    def _body(self, messages: list[dict[str, str]], schema: Mapping[str, Any], name: str) -> dict[str, Any]:
        form = {"type": "json_schema", "json_schema": {"name": name, "schema": schema, "strict": True}}
        return {"messages": messages, "response_format": form, **self._limits()}

    def _limits(self) -> dict[str, Any]:
        """Reasoning models of OpenAI and Azure take no temperature and call the limit by another name."""
        if self._server.kind == "vllm":
            return {"max_tokens": self._max_tokens, "temperature": 0.0}
        return {"max_completion_tokens": self._max_tokens}


def _content(reply: Mapping[str, Any]) -> tuple[str, str]:
    """What the model said, and what is wrong with it ('' for nothing)."""
    choice = completion(reply).choice
    if choice.said.refusal:
        return "", f"it refused ({choice.said.refusal})."
    return choice.said.content or "", "it was cut off at the token limit." if choice.finish_reason == "length" else ""


def _named(reply: Mapping[str, Any]) -> str:
    model = reply.get("model")
    return model[:LONGEST_MODEL] if isinstance(model, str) else ""


def _checked(text: str, schema: Mapping[str, Any]) -> tuple[Mapping[str, Any] | None, str]:
    try:
        data = _text_only(json.loads(text))
        jsonschema.validate(data, schema)
    except (ValueError, RecursionError) as error:
        return None, f"not JSON ({error})."
    except jsonschema.ValidationError as error:
        return None, f"{error.json_path}: {error.message[:300]}."
    return (data, "") if isinstance(data, dict) else (None, "not a JSON object.")


def _text_only(value: Any) -> Any:
    """Without NUL and lone surrogates, which JSON can spell and neither UTF-8 nor a database can hold."""
    match value:
        case str():
            return value.encode("utf-8", "ignore").decode().replace("\0", "")
        case list():
            return [_text_only(item) for item in value]
        case dict():
            return {name: _text_only(item) for name, item in value.items()}
    return value


def _sum(usage: ChatUsage, reply: Mapping[str, Any]) -> ChatUsage:
    return ChatUsage(usage.input_tokens + tokens_told(reply, "input"), usage.output_tokens + tokens_told(reply, "output"))
