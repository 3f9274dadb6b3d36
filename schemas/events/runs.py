"""Questions, answers and feedback: topics `queries` and `feedback`."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import Field

from schemas.events.envelope import EventData
from schemas.experiments import ExperimentArm
from schemas.judgements import GradedPassage
from schemas.run_records import RunRecord, StoppedState, move_former_settings
from schemas.topics import FEEDBACK, QUERIES


class QueryReceived(EventData, name="query.received", topic=QUERIES):
    """A question was received."""

    run_id: UUID
    tenant: str
    kind: str = Field(description="`query` or `search`.")
    request: dict[str, Any] = Field(description="The request as received.")
    received_at: datetime
    requested_by: str | None = Field(None, description="Id of the caller.")


def _upcast_profile(payload: dict[str, Any]) -> dict[str, Any]:
    record = payload.get("run_record")
    return payload if record is None else {**payload, "run_record": move_former_settings(record)}


class QueryAnswered(
    EventData, name="query.answered", topic=QUERIES, version=2, upcasts={1: _upcast_profile}
):
    """A question was answered."""

    run_id: UUID
    tenant: str
    generation: str = Field(description="Generation that was searched.")
    answered_at: datetime
    response: dict[str, Any] = Field(description="The response as sent.")
    candidates: list[dict[str, Any]] = []
    """Candidates of every channel: chunk id, rank, score, and the scores of later steps."""
    numbers: dict[str, Any] = {}
    """Numbers that entered the scores: means, deviations, idf values, threshold."""
    run_record: RunRecord | None = None
    """Further inputs that a rerun needs: profile, language, and passages by the hash of their text.
    """
    experiment: ExperimentArm | None = None
    """Arm of the experiment that the question took part in."""


class RunStarted(EventData, name="run.started", topic=QUERIES):
    """A question that is answered in the background was accepted."""

    run_id: UUID
    tenant: str
    started_at: datetime
    deadline: datetime
    """When the run has ended for certain: by itself, or because its process died."""
    requested_by: str = Field(description="Id of the caller.")
    process_id: UUID | None = None
    """The process that answers it; it holds a lock in the database."""


class RunProgressed(EventData, name="run.progressed", topic=QUERIES):
    """A step of a background run started or ended."""

    run_id: UUID
    tenant: str
    number: int = Field(description="Number of the event in its run, from 1, with gaps.")
    step: str = Field(description="Name of the step.")
    occurred_at: datetime
    ms: float | None = Field(None, description="Duration in ms, or null when the step starts.")


class RunStopped(EventData, name="run.stopped", topic=QUERIES):
    """A background run ended without an answer."""

    run_id: UUID
    tenant: str
    stopped_at: datetime
    state: StoppedState = Field(description="`interrupted`: the server that ran it stopped.")
    step: str | None = Field(None, description="Step that was running.")
    code: str = Field(description="Code of the error.")
    detail: str = Field(description="What happened.")
    remedy: str = Field(description="What to do.")


class FeedbackGiven(EventData, name="feedback.given", topic=FEEDBACK):
    """A user judged an answer or passages."""

    feedback_id: UUID
    tenant: str
    given_at: datetime
    run_id: UUID | None = Field(None, description="The run that the feedback is about.")
    query: str | None = Field(None, description="The question. Taken from the run if one is given.")
    useful: bool | None = Field(None, description="Whether the answer was useful.")
    judgements: list[GradedPassage] = Field([], description="Judged passages with their grades.")
    corrected_answer: str | None = None
    """The answer that should have been given."""
    note: str | None = Field(None, description="Free text.")
    candidate_rejected: bool = False
    """True if the question was rejected as a golden question."""
