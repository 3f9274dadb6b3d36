"""The words of an answer while its JSON is still coming: what is shown to whoever waits, before anything of it is proven."""

from __future__ import annotations

import json
import re

from retrieval.answer.drafts import without_marks
from schemas.questions import Delta, Tell

_TEXT = re.compile(r'"text"\s*:\s*"((?:[^"\\]|\\.)*)')
"""A sentence so far. Quotes inside a JSON string are escaped, so only the key itself matches."""
_WHOLE = re.compile(r"(?:[^\\]|\\[^u]|\\u(?![dD][89a-fA-F])[0-9a-fA-F]{4}|\\u[dD][89abAB]..\\u[dD][c-fC-F]..)*")
"""As far as no escape, and no pair of surrogates, waits for its other half."""
_OPEN_MARK = re.compile(r"\s*\[[^\]]*$|\s+$")


class Spoken:
    """`hear` takes pieces of JSON as the port Chat gives them, and tells the words that are new. A draft's words only ever grow."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._draft, self._json, self._told = 0, "", 0

    def hear(self, draft: int, piece: str, /) -> None:
        if draft != self._draft:
            self._draft, self._json, self._told = draft, "", 0
        self._json += piece
        words = spoken_words(self._json)
        if len(words) > self._told:
            self._tell(Delta(draft=draft, text=words[self._told :]))
            self._told = len(words)


def spoken_words(answer: str) -> str:
    """The sentences of an unfinished answer, without the model's own marks and without what may still turn out to be one."""
    sentences = [_decoded(match.group(1)) for match in _TEXT.finditer(answer)]
    if sentences:
        sentences[-1] = _OPEN_MARK.sub("", sentences[-1])
    return " ".join(filter(None, map(without_marks, sentences)))


def _decoded(raw: str) -> str:
    whole = _WHOLE.match(raw)
    return str(json.loads(f'"{whole.group() if whole else ""}"', strict=False)).replace("\0", "")
