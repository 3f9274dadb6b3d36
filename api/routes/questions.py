"""Saved questions, which are asked again when a document could change the answer."""

from __future__ import annotations

from uuid import UUID

from fastapi import APIRouter

from api.operations import OperationRoute, operation
from api.services import Caller, PageCursor, PageLimit, ServicesDep
from schemas.responses import Page
from schemas.standing_questions import (
    AnswerChange,
    SavedQuestion,
    StandingQuestion,
    StandingQuestionRequest,
)

router = APIRouter(route_class=OperationRoute, prefix="/questions", tags=["questions"])


@router.post("", status_code=201, operation_id="save_question")
@operation(
    "writer", problems="422 FORBIDDEN_ADDRESS FETCH_FAILED TOO_MANY_QUESTIONS UNKNOWN_PROFILE"
)
async def save_question(
    body: StandingQuestionRequest, services: ServicesDep, caller: Caller
) -> SavedQuestion:
    """Save a question, to be asked again when a document could change its answer.

    It is asked with the rights of this credential. The response alone has the secret of its web
    hook.
    """
    return await services.questions.save(caller, body)


@router.get("", operation_id="list_questions")
@operation("reader")
async def list_questions(
    services: ServicesDep, caller: Caller, after: PageCursor = None, limit: PageLimit = 50
) -> Page[StandingQuestion]:
    """List saved questions, the newest first. A caller limited to readers sees its own."""
    page = await services.questions.tables.list_page(caller, after=after, limit=limit)
    return Page[StandingQuestion].build(*page)


@router.get("/{question_id}", operation_id="get_question")
@operation("reader", problems="404 NOT_FOUND")
async def get_question(
    question_id: UUID, services: ServicesDep, caller: Caller
) -> StandingQuestion:
    """Get a saved question."""
    return await services.questions.get(caller, question_id)


@router.delete("/{question_id}", operation_id="delete_question")
@operation("writer", problems="404 NOT_FOUND")
async def delete_question(
    question_id: UUID, services: ServicesDep, caller: Caller
) -> StandingQuestion:
    """Delete a saved question and its list of changes. Its runs stay."""
    return await services.questions.delete(caller, question_id)


@router.get("/{question_id}/changes", operation_id="list_answer_changes")
@operation("reader", problems="404 NOT_FOUND")
async def list_answer_changes(
    question_id: UUID, services: ServicesDep, caller: Caller
) -> Page[AnswerChange]:
    """List the last hundred changes of the answer, the newest first, and whether they were
    delivered. `POST /v1/runs/{run}/diff` compares the two runs of a change.
    """
    return Page[AnswerChange].build(await services.questions.list_changes(caller, question_id))


@router.post("/{question_id}/redeliver", status_code=202, operation_id="redeliver_changes")
@operation("writer", problems="404 NOT_FOUND")
async def redeliver_changes(
    question_id: UUID, services: ServicesDep, caller: Caller
) -> Page[AnswerChange]:
    """Deliver the changes again whose web hook failed, and list all changes."""
    return Page[AnswerChange].build(await services.questions.redeliver(caller, question_id))
