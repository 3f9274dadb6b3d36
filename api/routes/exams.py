"""Exams that generations sit, and the thresholds learned from them."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Query
from pydantic import Field

from api.operations import OperationRoute, operation
from api.services import ServicesDep, WholeTenant, require_whole_tenant
from schemas.exams import (
    CalibrationBasis,
    CalibrationRequest,
    DefaultReason,
    ExamRequest,
    ShareInterval,
)
from schemas.responses import Page, ResponseModel, Time

router = APIRouter(
    route_class=OperationRoute, tags=["exams"], dependencies=[Depends(require_whole_tenant)]
)


class ExamMeasures(ResponseModel):
    passage_first: ShareInterval = Field(description="The right passage ranks first.")
    passage_in_ten: ShareInterval = Field(description="The right passage is among ten.")
    falsely_refused: ShareInterval = Field(description="Of the answerable questions.")
    correctly_refused: ShareInterval = Field(description="Of those without their document.")


class WeakDocument(ResponseModel):
    document_id: str
    name: str | None = Field(description="Null for a document that was erased since.")
    questions: int
    wrong: int
    """Questions refused falsely, answered falsely, or with another passage first."""


class ExamReport(ResponseModel):
    schema_version: int
    exam_id: str
    generation: str
    profile: str
    seed: int
    completed_at: Time
    questions: int
    failed: int = Field(description="Questions that failed with an error.")
    overall: ExamMeasures
    kinds: dict[str, ExamMeasures]
    collections: dict[str, ExamMeasures]
    """By collection; empty name for documents without one."""
    weakest_documents: list[WeakDocument]


class HeldOutMeasures(ResponseModel):
    """Thresholds from the exam questions of half of the documents, without upper limits, measured
    on the others. Means over 200 splits.
    """

    coverage: float = Field(description="Share of right passages that survive trimming.")
    passages: float = Field(description="Passages left of the first ten.")
    false_refusals: float = Field(description="Share of answerable questions refused.")


class CalibrationResponse(ResponseModel):
    """Thresholds that queries of this tenant use from now on. Null thresholds: the defaults."""

    tenant: str
    generation: str
    scores: str = Field(description="Fingerprint of the models behind the scores.")
    basis: CalibrationBasis
    questions: int = Field(description="Answerable questions that it was learned from.")
    coverage: float
    min_confidence: float | None
    trim: float | None
    exam_id: str | None
    default_reason: DefaultReason | None
    """Why the default `min_confidence` stays: too few questions, a stricter one may refuse too many
    answerable questions (`interval`), or it is not shown to refuse more of the others (`no_gain`).
    Null if it was learned.
    """
    held_out: HeldOutMeasures | None = Field(description="Null for fewer than two documents.")
    exam: ExamReport


@router.post("/exams", operation_id="examine")
@operation(
    "operator",
    problems="404 NO_SUCH_GENERATION 422 UNKNOWN_PROFILE",
    audit=("generation.examined", "{generation}"),
)
async def examine(body: ExamRequest, services: ServicesDep, caller: WholeTenant) -> ExamReport:
    """Make questions from the documents, run them, and report the results.

    Responds when all are done.
    """
    return ExamReport.model_validate(await services.exams.examine(caller, body))


@router.post("/calibrations", operation_id="calibrate")
@operation(
    "operator",
    problems="404 NO_SUCH_GENERATION 422 UNKNOWN_PROFILE",
    audit=("generation.calibrated", "{generation}"),
)
async def calibrate(
    body: CalibrationRequest, services: ServicesDep, caller: WholeTenant
) -> CalibrationResponse:
    """Run an exam, and learn the thresholds of refusal and trimming for the generation.

    Responds when all is done.
    """
    return CalibrationResponse.model_validate(await services.exams.calibrate(caller, body))


@router.get("/exams", operation_id="list_exams")
@operation("admin")
async def list_exams(
    services: ServicesDep,
    caller: WholeTenant,
    limit: Annotated[int, Query(ge=1, le=100, description="Maximum number of exams.")] = 20,
) -> Page[ExamReport]:
    """List exams, newest first."""
    return Page[ExamReport].build(await services.exams.list_exams(caller, limit))


@router.get("/exams/{exam_id}", operation_id="get_exam")
@operation("admin", problems="404 NOT_FOUND")
async def get_exam(exam_id: UUID, services: ServicesDep, caller: WholeTenant) -> ExamReport:
    """Get the report of an exam."""
    return ExamReport.model_validate(await services.exams.get_exam(caller, exam_id))
