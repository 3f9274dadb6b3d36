"""Exams, and the passages that questions are made from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from schemas.exams import Exam
from sql.database import PgStore


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


class PgExams(PgStore):
    """Exams over Postgres. Every method may raise DatabaseUnavailable."""

    async def fetch_passages(
        self, generation: str, tenant: str, seed: int, limit: int
    ) -> list[ExamPassage]:
        """Return visible chunks, in an order that depends on the seed and their ids only."""
        rows = await self._fetch("exam_passages", generation, tenant, str(seed), limit)
        return [ExamPassage(**row) for row in rows]

    async def fetch_exam(self, tenant: str, exam_id: UUID) -> Exam | None:
        rows = await self._fetch("exam", tenant, exam_id)
        return Exam.model_validate(rows[0]["exam"]) if rows else None

    async def list_exams(self, tenant: str, limit: int) -> list[Exam]:
        """Return exams, newest first."""
        rows = await self._fetch("exams", tenant, limit)
        return [Exam.model_validate(row["exam"]) for row in rows]

    async def fetch_labels(
        self, tenant: str, document_ids: Sequence[UUID]
    ) -> dict[UUID, DocumentLabel]:
        """Return the labels of documents that were not erased since."""
        rows = await self._fetch("document_labels", tenant, list(document_ids))
        return {row["id"]: DocumentLabel(row["name"], row["collection"]) for row in rows}
