"""Extract the words of an answer while its JSON is still being streamed, before any of it is
verified.
"""

from __future__ import annotations

import json
import re

from retrieval.answer.drafts import strip_citation_marks
from schemas.questions import AnswerDelta, OnProgress

# A sentence so far. Quotes inside a JSON string are escaped, so only the key itself matches.
_TEXT = re.compile(r'"text"\s*:\s*"((?:[^"\\]|\\.)*)')
# Ends before an incomplete escape or half a surrogate pair.
_COMPLETE_ESCAPES = re.compile(
    r"(?:[^\\]|\\[^u]|\\u(?![dD][89a-fA-F])[0-9a-fA-F]{4}|\\u[dD][89abAB]..\\u[dD][c-fC-F]..)*"
)
_OPEN_MARK = re.compile(r"\s*\[[^\]]*$|\s+$")


class PartialAnswer:
    """Collect pieces of JSON as the chat port streams them, and report new words.

    A draft's text only grows.
    """

    def __init__(self, on_progress: OnProgress) -> None:
        self._on_progress = on_progress
        self._draft, self._json, self._published_length = 0, "", 0

    def feed(self, draft: int, piece: str, /) -> None:
        if draft != self._draft:
            self._draft, self._json, self._published_length = draft, "", 0
        self._json += piece
        text = parse_partial_text(self._json)
        if len(text) > self._published_length:
            self._on_progress(AnswerDelta(draft=draft, text=text[self._published_length :]))
            self._published_length = len(text)


def parse_partial_text(answer: str) -> str:
    """Return the sentences of an unfinished answer.

    Citation marks are left out, also those that may only be beginning.
    """
    sentences = [_decode_partial(match.group(1)) for match in _TEXT.finditer(answer)]
    if sentences:
        sentences[-1] = _OPEN_MARK.sub("", sentences[-1])
    return " ".join(filter(None, map(strip_citation_marks, sentences)))


def _decode_partial(raw: str) -> str:
    complete = _COMPLETE_ESCAPES.match(raw)
    return str(json.loads(f'"{complete.group() if complete else ""}"', strict=False)).replace(
        "\0", ""
    )
