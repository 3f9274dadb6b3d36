"""What an answerer hands on."""

from __future__ import annotations

import re
from dataclasses import dataclass

from schemas.ports.engines import ChatReply
from schemas.questions import Citation


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence of an answer, without its marks, and the numbers of its citations."""

    text: str
    citations: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Draft:
    """An answer before it is judged. Without sentences the contexts were not enough. `closeness` and `reply` are what engines said for it."""

    sentences: tuple[Sentence, ...]
    citations: tuple[Citation, ...]
    model: str
    assumptions: tuple[str, ...] = ()
    limitations: tuple[str, ...] = ()
    calls: int = 0
    tokens: int = 0
    closeness: tuple[float, ...] | None = None
    reply: ChatReply | None = None

    @property
    def whole(self) -> bool:
        """Whether every engine that was asked for it has answered: no model was away, and sentences were chosen by more than their words."""
        return self.reply is not None or (self.closeness is not None and not self.calls)

    @property
    def text(self) -> str:
        """The sentences, each with its citation marks."""
        return " ".join(f"{sentence.text} {''.join(f'[{n}]' for n in sentence.citations)}" for sentence in self.sentences)


def without_marks(text: str) -> str:
    """The model's own `[n]` marks count contexts; ours count citations."""
    return re.sub(r"\s*\[\d+(?:\s*,\s*\d+)*\]", "", text).strip()
