"""What an answerer hands on."""

from __future__ import annotations

import re
from dataclasses import dataclass

from schemas.ports.engines import ChatReply
from schemas.questions import Citation


@dataclass(frozen=True, slots=True)
class DraftSentence:
    """One sentence of an answer, without its marks, and the numbers of its citations."""

    text: str
    citations: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AnswerDraft:
    """An answer before it is judged. Without sentences the contexts were not enough. `closeness` and `reply` are what engines said for it;
    `lost` says that one that was asked said nothing: it is another answer than the next one may be."""

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
        """The sentences, each with its citation marks."""
        return " ".join(f"{sentence.text} {''.join(f'[{n}]' for n in sentence.citations)}" for sentence in self.sentences)


def strip_citation_marks(text: str) -> str:
    """The model's own `[n]` marks count contexts; ours count citations."""
    return re.sub(r"(?<!\s)\s*+\[\d++(?:\s*+,\s*+\d++)*+\]", "", text).strip()
