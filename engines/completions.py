"""Chat completion replies, whole or streamed, validated: a gateway may answer 200 with anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from engines.resilience import ServerCallError


class _ReplyModel(BaseModel):
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
        fault = error.errors(include_url=False, include_input=False)[0]
        location = ".".join(map(str, fault["loc"]))
        raise ServerCallError(
            f"The chat server sent an invalid completion: {location}: {fault['msg']}.",
            code="ENGINE_BROKEN_ANSWER",
        ) from error
