"""What a text scores by being a text: its mean similarity to general questions (of a passage) or to general passages (of a question).

The texts are fixed and shipped with the engine, so a score less its background means the same in every corpus.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engines.embed.atomic_file import write_atomically

Floats = NDArray[np.float32]
_ASSETS = files("engines.embed") / "assets"


@cache
def load_texts(name: str) -> list[str]:
    """`questions` or `passages`: sixty each, half English, half Portuguese."""
    return (_ASSETS / f"{name}.txt").read_text(encoding="utf-8").splitlines()


def hash_texts(name: str) -> str:
    return hashlib.sha256("\n".join(load_texts(name)).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Background:
    """Vectors [texts, dimension] and the token states of all texts in one array, the first row of each in `starts`."""

    vectors: Floats
    states: Floats
    starts: NDArray[np.int64]

    @classmethod
    def from_vectors(cls, vectors: list[Floats], states: list[Floats]) -> Background:
        starts = np.cumsum([0, *map(len, states[:-1])])
        return cls(np.stack(vectors), np.concatenate(states), starts)

    @classmethod
    def load(cls, path: Path) -> Background:
        with np.load(path) as stored:
            return cls(stored["vectors"], stored["states"], stored["starts"])

    def save(self, path: Path) -> None:
        """Whole or not at all; two processes may do so at the same time."""
        write_atomically(path, lambda draft: np.savez(draft, vectors=self.vectors, states=self.states, starts=self.starts))

    def mean_cosine(self, vector: Floats) -> float:
        """Mean cosine with the texts."""
        return float((self.vectors @ vector).mean())

    def mean_maxsim_for_passage(self, passage: Floats) -> float | None:
        """Mean MaxSim of these texts against the passage's states; None for a passage without tokens."""
        if not len(passage):
            return None
        best = (self.states @ passage.T).max(axis=1)
        lengths = np.diff(np.append(self.starts, len(best)))
        return float((np.add.reduceat(best, self.starts) / lengths).mean())

    def mean_maxsim_for_question(self, question: Floats) -> float | None:
        """Mean MaxSim of the question's states against these texts; None for a question without tokens."""
        if not len(question):
            return None
        return float(np.maximum.reduceat(question @ self.states.T, self.starts, axis=1).mean())
