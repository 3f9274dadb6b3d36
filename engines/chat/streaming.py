"""Streamed chat completions, assembled into the reply of an ordinary call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from engines.completions import parse_completion
from schemas.ports.engines import OnDelta


class StreamAttempts:
    """Numbers the attempts at a reply from 1, so that `on_delta` can discard earlier text."""

    def __init__(self, on_delta: OnDelta) -> None:
        self._on_delta, self._attempt_number = on_delta, 0

    def start_attempt(self) -> StreamedCompletion:
        self._attempt_number += 1
        return StreamedCompletion(partial(self._on_delta, self._attempt_number))


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
                self._on_delta(delta)

    def to_reply(self) -> dict[str, Any]:
        message = {"role": "assistant", "content": self._content, "refusal": self._refusal or None}
        return {
            "model": self._model,
            "choices": [{"index": 0, "message": message, "finish_reason": self._finish_reason}],
            "usage": self._usage,
        }
