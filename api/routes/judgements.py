"""Judgements of passages, and questions to judge: export, candidates, drafts."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Query
from pydantic import Field

from api.operations import OperationRoute, operation
from api.services import ServicesDep, WholeTenant, require_whole_tenant
from evaluation.comparison import GoldenQuestion
from schemas.exams import MAX_EXAM_QUESTIONS
from schemas.responses import Page, ResponseModel, Time

router = APIRouter(
    route_class=OperationRoute,
    prefix="/judgements",
    tags=["exams"],
    dependencies=[Depends(require_whole_tenant)],
)


class HardNegatives(ResponseModel):
    query: str
    positives: list[str] = Field(description="Quotes of relevant passages.")
    negatives: list[str] = Field(description="Quotes of passages judged irrelevant.")


class DifficultQuestion(ResponseModel):
    query: str
    run_id: str
    answered_at: Time
    refused: bool
    code: str | None
    confidence: str | None
    useful: bool | None
    corrected_answer: str | None
    note: str | None


class JudgementExport(ResponseModel):
    schema_version: int
    golden: list[GoldenQuestion] = Field(description="Judged questions, as comparisons read them.")
    hard_negatives: list[HardNegatives]
    difficult: list[DifficultQuestion]
    """Refused, of low confidence, or judged not useful; the newest thousand."""


@router.get("", operation_id="export_judgements")
@operation("admin")
async def export_judgements(
    services: ServicesDep,
    caller: WholeTenant,
    since: Annotated[datetime | None, Query(description="Start of the period.")] = None,
    until: Annotated[datetime | None, Query(description="End of the period.")] = None,
) -> JudgementExport:
    """Export the judgements of a period by question, and the difficult questions."""
    return JudgementExport.model_validate(
        await services.judgements.export_judgements(caller, since, until)
    )


class CandidatePassage(ResponseModel):
    n: int = Field(description="Number of the citation.")
    chunk_id: UUID
    title: str | None
    quote: str


class GoldenCandidate(ResponseModel):
    """An answered question without judged passages."""

    query: str
    run_id: UUID
    answered_at: Time
    answer: str
    probability: float | None = Field(description="Estimated probability of a right answer.")
    useful: bool | None = Field(description="True if the answer was judged useful.")
    passages: list[CandidatePassage] = Field(description="What the answer cites.")


class QuestionDraft(ResponseModel):
    """A question made from a passage. `query` and `grades` are the body of `POST /v1/feedback`."""

    query: str
    grades: dict[UUID, int] = Field(description="Grade 3 for the chunk that answers it.")
    document: str
    passage: str


@router.get("/candidates", operation_id="list_candidates")
@operation("admin")
async def list_candidates(
    services: ServicesDep,
    caller: WholeTenant,
    limit: Annotated[int, Query(ge=1, le=500, description="Maximum number of questions.")] = 20,
) -> Page[GoldenCandidate]:
    """List questions to accept as golden questions: useful answers first, then the most probable.

    Accept one by grading its passages with `POST /v1/feedback`; reject it with
    `candidate_rejected`.
    """
    return Page[GoldenCandidate].build(await services.judgements.list_candidates(caller, limit))


@router.get("/drafts", operation_id="draft_questions")
@operation("admin")
async def draft_questions(
    services: ServicesDep,
    caller: WholeTenant,
    questions: Annotated[
        int, Query(ge=1, le=MAX_EXAM_QUESTIONS, description="Maximum number of questions.")
    ] = 50,
    seed: Annotated[
        int, Query(ge=0, lt=2**31, description="Selects the questions, as in an exam.")
    ] = 0,
) -> Page[QuestionDraft]:
    """Draft questions from the documents, as an exam does, for an expert to edit."""
    return Page[QuestionDraft].build(
        await services.judgements.draft_questions(caller, questions, seed)
    )
