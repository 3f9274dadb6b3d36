"""The draft of an answer, before it is judged."""

from __future__ import annotations

import re
from dataclasses import dataclass

from schemas.ports.engines import ChatReply
from schemas.questions import Citation


@dataclass(frozen=True, slots=True)
class DraftSentence:
    """One sentence of an answer, without citation marks, and the numbers of its citations."""

    text: str
    citations: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AnswerDraft:
    """An answer before it is judged. No sentences means that the contexts were not sufficient.

    `closeness` and `reply` are recorded for reruns. `has_engine_failure`: an engine failed to
    reply, so the answer must not be cached.
    """

    sentences: tuple[DraftSentence, ...]
    citations: tuple[Citation, ...]
    model: str
    assumptions: tuple[str, ...] = ()
    limitations: tuple[str, ...] = ()
    calls: int = 0
    tokens: int = 0
    closeness: tuple[float, ...] | None = None
    reply: ChatReply | None = None
    has_engine_failure: bool = False

    @property
    def text(self) -> str:
        """The sentences, each followed by its citation marks."""
        return " ".join(
            f"{sentence.text} {''.join(f'[{n}]' for n in sentence.citations)}"
            for sentence in self.sentences
        )


def strip_citation_marks(text: str) -> str:
    """Remove the model's own `[n]` marks: they count contexts, ours count citations."""
    return re.sub(r"(?<!\s)\s*+\[\d++(?:\s*+,\s*+\d++)*+\]", "", text).strip()
