"""A chat completion that comes in pieces, put together to what the plain call would have answered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from engines.completions import completion
from schemas.ports.engines import Hear


class Drafts:
    """Each try at an answer is a draft of its own, numbered from 1."""

    def __init__(self, hear: Hear) -> None:
        self._hear, self._begun = hear, 0

    def begin(self) -> Streamed:
        self._begun += 1
        return Streamed(partial(self._hear, self._begun))


class Streamed:
    """`complete` once the model has said why it stopped: a stream that ends before was cut off."""

    def __init__(self, hear: Callable[[str], None]) -> None:
        self._hear, self._said, self._refused = hear, "", ""
        self._model, self._stopped = "", ""
        self._usage: Mapping[str, Any] = {}

    @property
    def complete(self) -> bool:
        return bool(self._stopped)

    def take(self, part: Mapping[str, Any]) -> None:
        """Raises Unanswered for a part of another form."""
        self._model = part.get("model") or self._model
        self._usage = part.get("usage") or self._usage
        for choice in completion(part).choices or ():
            self._refused += choice.said.refusal or ""
            self._stopped = choice.finish_reason or self._stopped
            if piece := choice.said.content:
                self._said += piece
                self._hear(piece)

    def reply(self) -> dict[str, Any]:
        message = {"role": "assistant", "content": self._said, "refusal": self._refused or None}
        return {"model": self._model, "choices": [{"index": 0, "message": message, "finish_reason": self._stopped}], "usage": self._usage}
