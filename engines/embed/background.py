"""Background scores of questions and passages.

The background of a passage is its mean similarity to general questions, that of a question its mean
similarity to general passages.

The texts are fixed and shipped with the engine, so a score minus its background is comparable
between corpora.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engines.disk import write_atomically
from engines.embed.states import Floats

_ASSETS = files("engines.embed") / "assets"


@cache
def load_texts(name: str) -> list[str]:
    """Load the sixty `questions` or `passages`, half English, half Portuguese."""
    return (_ASSETS / f"{name}.txt").read_text(encoding="utf-8").splitlines()


def hash_texts(name: str) -> str:
    return hashlib.sha256("\n".join(load_texts(name)).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Background:
    """Vectors [texts, dimension] and token states [tokens of all texts, dimension].

    `starts` has each text's first row.
    """

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
        write_atomically(
            path,
            lambda temporary_path: np.savez(
                temporary_path, vectors=self.vectors, states=self.states, starts=self.starts
            ),
        )

    def mean_cosine(self, vector: Floats) -> float:
        return float((self.vectors @ vector).mean())

    def mean_maxsim_for_passage(self, passage: Floats) -> float | None:
        """Return the mean MaxSim of the texts against a passage's states, None if it has no tokens."""
        if not len(passage):
            return None
        best = (self.states @ passage.T).max(axis=1)
        lengths = np.diff(np.append(self.starts, len(best)))
        return float((np.add.reduceat(best, self.starts) / lengths).mean())

    def mean_maxsim_for_question(self, question: Floats) -> float | None:
        """Return the mean MaxSim of a question's states against the texts, None without tokens."""
        if not len(question):
            return None
        return float(np.maximum.reduceat(question @ self.states.T, self.starts, axis=1).mean())
