"""Exams, calibrations, and the passages that questions are made from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from cachetools import TTLCache

from schemas.exams import Calibration, Exam
from sql.pool import Pool, fetch_rows

CALIBRATION_TTL_S = 1.0
"""A new calibration takes effect within this time."""


@dataclass(frozen=True, slots=True)
class ExamPassage:
    """A chunk to make questions from. `chunks` counts those of its document."""

    id: UUID
    parent_id: UUID
    document_id: UUID
    name: str
    collection: str | None
    kind: str
    language: str | None
    text: str
    prefix: str
    char_start: int
    char_end: int
    chunks: int


@dataclass(frozen=True, slots=True)
class DocumentLabel:
    name: str
    collection: str | None


class PgExams:
    """Exams over Postgres. Every method may raise DatabaseUnavailable."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def fetch_passages(
        self, generation: str, tenant: str, seed: int, limit: int
    ) -> list[ExamPassage]:
        """Return visible chunks, in an order that depends on the seed and their ids only."""
        rows = await fetch_rows(self._pool, "exam_passages", generation, tenant, str(seed), limit)
        return [ExamPassage(**row) for row in rows]

    async def fetch_exam(self, tenant: str, exam_id: UUID) -> Exam | None:
        rows = await fetch_rows(self._pool, "exam", tenant, exam_id)
        return Exam.model_validate(rows[0]["exam"]) if rows else None

    async def list_exams(self, tenant: str, limit: int) -> list[Exam]:
        """Return exams, newest first."""
        rows = await fetch_rows(self._pool, "exams", tenant, limit)
        return [Exam.model_validate(row["exam"]) for row in rows]

    async def fetch_labels(
        self, tenant: str, document_ids: Sequence[UUID]
    ) -> dict[UUID, DocumentLabel]:
        """Return the labels of documents that were not erased since."""
        rows = await fetch_rows(self._pool, "document_labels", tenant, list(document_ids))
        return {row["id"]: DocumentLabel(row["name"], row["collection"]) for row in rows}


class PgCalibrations:
    """Calibrations over Postgres, read at most once a second for each key."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._cached: TTLCache[tuple[str, str, str | None], Calibration | None] = TTLCache(
            1024, CALIBRATION_TTL_S
        )

    async def fetch(
        self, tenant: str, generation: str, scores: str | None = None
    ) -> Calibration | None:
        """Return the latest calibration of the generation for these scores, or for any. A rebuild
        has that of the generation it was rebuilt from.
        """
        key = (tenant, generation, scores)
        try:
            return self._cached[key]
        except KeyError:  # a membership test could see an entry expire
            rows = await fetch_rows(self._pool, "calibrations", tenant, generation, scores)
        calibration = Calibration.model_validate(rows[0]["calibration"]) if rows else None
        self._cached[key] = calibration
        return calibration
