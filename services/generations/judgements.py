"""Judgements of passages, and questions that people may turn into judgements."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from evaluation.exam import choose_questions
from evaluation.judgement_export import build_judgement_export
from schemas.judgements import MAX_GRADE
from schemas.principals import Principal
from services.generations.exams import PASSAGES_PER_QUESTION
from services.query.retriever_pool import RetrieverPool
from sql.catalog.exams import PgExams
from sql.catalog.runs import PgFeedback

MAX_DIFFICULT = 1000


@dataclass(frozen=True, slots=True)
class JudgementService:
    retrievers: RetrieverPool
    exams: PgExams
    feedback: PgFeedback

    async def export_judgements(
        self, caller: Principal, since: datetime | None, until: datetime | None
    ) -> dict[str, Any]:
        """Return the tenant's judgements of a period and its difficult questions."""
        return build_judgement_export(
            await self.feedback.fetch_judgements(caller.tenant, since, until),
            await self.feedback.fetch_difficult(caller.tenant, since, until, MAX_DIFFICULT),
        )

    async def list_candidates(self, caller: Principal, limit: int) -> list[dict[str, Any]]:
        """Return answered questions that a person may accept as golden questions, best first."""
        return [
            {name: row[name] for name in ("query", "run_id", "answered_at", "answer")}
            | {"probability": row["probability"], "useful": row["useful"]}
            | {
                "passages": [
                    {name: citation.get(name) for name in ("n", "chunk_id", "title", "quote")}
                    for citation in row["citations"]
                ]
            }
            for row in await self.feedback.fetch_candidates(caller.tenant, limit)
        ]

    async def draft_questions(
        self, caller: Principal, questions: int, seed: int
    ) -> list[dict[str, Any]]:
        """Make questions from the live generation's passages, for an expert to edit."""
        async with self.retrievers.acquire(None) as (generation, _):
            passages = await self.exams.fetch_passages(
                generation, caller.tenant, seed, PASSAGES_PER_QUESTION * questions
            )
        return [
            {
                "query": question.text,
                "grades": {str(question.passage.id): MAX_GRADE},
                "document": question.passage.name,
                "passage": question.passage.text,
            }
            for question in choose_questions(passages, questions, seed)
        ]
