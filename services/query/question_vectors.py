"""Find the saved questions that a new chunk is similar to.

The vectors of all questions are kept in memory: comparing them by the database takes ten times as
long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from sql.index.standing_questions import IndexKey, PgStandingQuestions, QuestionVector

OVERLAP = timedelta(seconds=30)
"""Answers of another process may become visible in another order than they were made."""


@dataclass(slots=True)
class QuestionVectors:
    """Vectors of the saved questions. A deleted question keeps its vector until the next start; the
    database ignores its matches.
    """

    tables: PgStandingQuestions
    rows: dict[UUID, QuestionVector] = field(default_factory=dict)
    latest: datetime | None = None
    stacked: dict[IndexKey, tuple[list[UUID], NDArray[np.float32], NDArray[np.float32]]] = field(
        default_factory=dict
    )

    async def find_similar(self, documents: Sequence[UUID]) -> list[tuple[UUID, UUID]]:
        """Return pairs of document and question."""
        await self._refresh()
        chunks = await self.tables.fetch_chunk_vectors(documents)
        pairs = list[tuple[UUID, UUID]]()
        for index in {index for index, _, _ in chunks}:
            owners = [document for other, document, _ in chunks if other == index]
            vectors = np.stack([vector for other, _, vector in chunks if other == index])
            # In a thread: a page of documents takes some ten milliseconds.
            pairs += await asyncio.to_thread(self._compare, index, owners, vectors)
        return list(dict.fromkeys(pairs))

    async def _refresh(self) -> None:
        after = None if self.latest is None else self.latest - OVERLAP
        for row in await self.tables.fetch_vectors(after):
            known = self.rows.get(row.question_id)
            if known is None or known.answered_at != row.answered_at:
                self.rows[row.question_id] = row
                for index in {row.index, *([known.index] if known else [])}:
                    self.stacked.pop(index, None)
            self.latest = max(self.latest or row.answered_at, row.answered_at)

    def _compare(
        self, index: IndexKey, owners: Sequence[UUID], vectors: NDArray[np.float32]
    ) -> list[tuple[UUID, UUID]]:
        if index not in self.stacked:
            rows = [
                row
                for row in self.rows.values()
                if row.index == index and row.min_similarity is not None
            ]
            if not rows:
                return []
            self.stacked[index] = (
                [row.question_id for row in rows],
                _normalize(np.stack([row.vector for row in rows])),
                np.array([row.min_similarity for row in rows], np.float32),
            )
        questions, matrix, floors = self.stacked[index]
        found = np.argwhere(_normalize(vectors) @ matrix.T >= floors)
        return [(owners[chunk], questions[question]) for chunk, question in found]


def _normalize(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(norms, np.float32(1e-12)))
