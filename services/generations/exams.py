"""Examine generations with questions from their own documents, and learn their thresholds.

Also judgements of passages, and questions that people may turn into judgements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from evaluation.calibration import calibrate, measure_held_out
from evaluation.exam import ExamQuestion, build_exam, choose_questions, summarize_exam
from evaluation.judgements import build_judgement_export
from retrieval.ranking.passages import get_strength
from retrieval.ranking.retrieval_result import RetrievalResult
from retrieval.retriever import Retriever
from schemas.errors import AnabranchError, TransientError, unknown_resource_error
from schemas.exams import (
    Calibration,
    CalibrationRequest,
    Exam,
    ExamItem,
    ExamRequest,
    RankedQuestion,
)
from schemas.judgements import MAX_GRADE, GradedPassage
from schemas.principals import Principal
from schemas.questions import QueryRequest
from services.background_tasks import poll_until
from services.generations.decisions import PROJECTION_TIMEOUT_S, GenerationDecisions
from services.query.retriever_pool import RetrieverPool
from sql.catalog.exams import PgExams
from sql.catalog.runs import PgFeedback
from sql.index.generations import PgCalibrations

PASSAGES_PER_QUESTION = 20
"""Passages that are read for each question: few passages yield one."""
N_COMPARED = 10
"""Passages whose shares of the best score trimming compares."""


@dataclass(frozen=True, slots=True)
class ExamService:
    retrievers: RetrieverPool
    exams: PgExams
    calibrations: PgCalibrations
    feedback: PgFeedback
    decisions: GenerationDecisions
    clock: Callable[[], datetime]
    fresh_id: Callable[[], UUID]

    async def examine(self, caller: Principal, request: ExamRequest) -> dict[str, Any]:
        """Run an exam, publish it, and return its report.

        Raises NotFound, InvalidRequest (not built; unknown profile) and TransientError.
        """
        async with self.retrievers.acquire(request.generation) as (generation, retriever):
            exam = await self._run_exam(caller, generation, retriever, request)
        return await self._report(exam)

    async def calibrate(self, caller: Principal, request: CalibrationRequest) -> dict[str, Any]:
        """Run an exam, learn the thresholds, publish both, and return the calibration.

        Raises as `examine` does.
        """
        async with self.retrievers.acquire(request.generation) as (generation, retriever):
            exam = await self._run_exam(caller, generation, retriever, request)
            judged = await self._run_judged(caller, generation, retriever, request)
        result = calibrate(exam, judged, request)
        calibration = result.calibration
        await self.decisions.publish_calibration(calibration)
        await poll_until(partial(self._has_calibration, calibration), PROJECTION_TIMEOUT_S)
        held_out = measure_held_out(exam.items, request.coverage, request.false_refusals)
        return calibration.model_dump(mode="json") | {
            "default_reason": result.reason,
            "held_out": held_out,
            "exam": await self._report(exam),
        }

    async def list_exams(self, caller: Principal, limit: int) -> list[dict[str, Any]]:
        return [
            await self._report(exam) for exam in await self.exams.list_exams(caller.tenant, limit)
        ]

    async def get_exam(self, caller: Principal, exam_id: UUID) -> dict[str, Any]:
        exam = await self.exams.fetch_exam(caller.tenant, exam_id)
        if exam is None:
            raise unknown_resource_error("exam", str(exam_id), "List them with `GET /v1/exams`.")
        return await self._report(exam)

    async def _report(self, exam: Exam) -> dict[str, Any]:
        document_ids = sorted({item.document_id for item in exam.items})
        return summarize_exam(exam, await self.exams.fetch_labels(exam.tenant, document_ids))

    async def _run_exam(
        self, caller: Principal, generation: str, retriever: Retriever, request: ExamRequest
    ) -> Exam:
        passages = await self.exams.fetch_passages(
            generation, caller.tenant, request.seed, PASSAGES_PER_QUESTION * request.questions
        )
        questions = build_exam(passages, request.questions, request.seed)
        items: list[ExamItem] = []
        n_failed = 0
        for question in questions:
            try:
                items.append(await _ask(retriever, caller, generation, question, request.profile))
            except TransientError:
                raise  # the other questions would fail as well
            except AnabranchError:
                n_failed += 1
        exam = Exam(
            exam_id=self.fresh_id(),
            tenant=caller.tenant,
            generation=generation,
            profile=request.profile,
            seed=request.seed,
            scores=retriever.fingerprint_scores(request.profile),
            completed_at=self.clock(),
            items=items,
            failed=n_failed,
        )
        await self.decisions.publish_exam(exam)
        return exam

    async def _run_judged(
        self, caller: Principal, generation: str, retriever: Retriever, request: CalibrationRequest
    ) -> list[RankedQuestion]:
        """Ask the questions whose passages people judged as answers, best grade first."""
        judgements: dict[str, GradedPassage] = {}
        for query, judged in await self.feedback.fetch_judgements(caller.tenant, None, None):
            if judged.grade > 0 and (
                query not in judgements or judged.grade > judgements[query].grade
            ):
                judgements[query] = judged
        # Too few to learn from.
        if len(judgements) < request.min_questions:
            return []
        items: list[RankedQuestion] = []
        for query, judged in list(judgements.items())[: request.questions]:
            result = await _retrieve(retriever, caller, generation, query, request.profile, {})
            ranks = (
                rank
                for rank, parent in enumerate(result.ranking.parents, 1)
                if parent.document_id == judged.document_id
                and parent.best.chunk.char_start < judged.char_end
                and judged.char_start < parent.best.chunk.char_end
            )
            items.append(RankedQuestion(**_describe(result, next(ranks, None))))
        return items

    async def _has_calibration(self, calibration: Calibration) -> bool:
        stored = await self.calibrations.fetch(
            calibration.tenant, calibration.generation, calibration.scores
        )
        return stored is not None and stored.exam_id == calibration.exam_id


async def _ask(
    retriever: Retriever, caller: Principal, generation: str, question: ExamQuestion, profile: str
) -> ExamItem:
    passage = question.passage
    excluded = {passage.document_id: passage.chunks} if question.hidden else {}
    result = await _retrieve(retriever, caller, generation, question.text, profile, excluded)
    ranks = (
        rank
        for rank, parent in enumerate(result.ranking.parents, 1)
        if passage.parent_id in (parent.parent_id, *(one.parent_id for one in parent.duplicates))
    )
    return ExamItem(
        **_describe(result, next(ranks, None)),
        kind=question.kind,
        document_id=passage.document_id,
        char_start=passage.char_start,
        char_end=passage.char_end,
        hidden=question.hidden,
    )


async def _retrieve(
    retriever: Retriever,
    caller: Principal,
    generation: str,
    text: str,
    profile: str,
    excluded: Mapping[UUID, int],
) -> RetrievalResult:
    # A principal without reader limits: the thresholds serve the whole tenant.
    _, result, _ = await retriever.weigh_evidence(
        Principal("exam", caller.tenant),
        # The sentence of a document may state what looks like a filter.
        QueryRequest(query=text, profile=profile, generation=generation, infer_filters=False),
        excluded,
    )
    return result


def _describe(result: RetrievalResult, rank: int | None) -> dict[str, Any]:
    relevance = result.relevance
    strengths = [
        get_strength(parent, relevance.background) for parent in result.ranking.parents[:N_COMPARED]
    ]
    best = max(strengths, default=0.0)
    return {
        "rank": rank,
        "refused": relevance.refused,
        "probability": relevance.probability,
        "lacks_terms": bool(relevance.missing_terms),
        # Trimming keeps the first passage alone where no score is above the background.
        "shares": [
            round(strength / best, 4) if best > 0 else float(not place)
            for place, strength in enumerate(strengths)
        ],
    }


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
