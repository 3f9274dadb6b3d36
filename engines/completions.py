"""What a chat completion is, whole or in pieces. A server behind a gateway may answer 200 with anything: what is read here has been looked at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from engines.resilience import Unanswered


class _Told(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)


class Message(_Told):
    content: str | None = None
    refusal: str | None = None


class Choice(_Told):
    message: Message | None = None
    delta: Message | None = None
    finish_reason: str | None = None

    @property
    def said(self) -> Message:
        return self.message or self.delta or Message()


class Completion(_Told):
    choices: list[Choice] | None = None

    @property
    def choice(self) -> Choice:
        """The first one: no more are asked for."""
        return next(iter(self.choices or ()), Choice())


def completion(answer: Mapping[str, Any]) -> Completion:
    """Raises Unanswered (ENGINE_BROKEN_ANSWER) for what has another form."""
    try:
        return Completion.model_validate(answer)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, fault["loc"]))
        raise Unanswered(f"The chat server's answer is no completion: {place}: {fault['msg']}.", code="ENGINE_BROKEN_ANSWER") from error
