"""Rows of questions: runs, feedback and facts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from schemas.facts import Decision, Fact
from schemas.judgements import GradedPassage


@dataclass(frozen=True, slots=True)
class RunRow:
    """A question and its response. `response` is None until the question is answered.

    `steps` has the progress of a background run by number, `stopped` its end without an answer.
    """

    run_id: UUID
    tenant: str
    kind: str
    request: dict[str, Any] | None
    received_at: datetime | None
    generation: str | None
    response: dict[str, Any] | None
    answered_at: datetime | None
    candidates: list[dict[str, Any]]
    numbers: dict[str, Any]
    run_record: dict[str, Any] | None = None
    requested_by: str | None = None
    deadline: datetime | None = None
    steps: Mapping[str, Any] = field(default_factory=dict)
    stopped: dict[str, Any] | None = None
    process_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class FeedbackRow:
    """Feedback on an answer, with the judged passages."""

    feedback_id: UUID
    tenant: str
    given_at: datetime
    run_id: UUID | None
    query: str | None
    useful: bool | None
    judgements: tuple[GradedPassage, ...]
    corrected_answer: str | None
    note: str | None
    candidate_rejected: bool = False


@dataclass(frozen=True, slots=True)
class FactRow:
    """A fact that was proposed."""

    tenant: str
    fact: Fact


@dataclass(frozen=True, slots=True)
class FactEventRow:
    """An event of a fact, at an offset of topic `feedback`."""

    tenant: str
    fact_id: UUID
    log_offset: int


@dataclass(frozen=True, slots=True)
class FactDecisionRow:
    """Approve or reject a fact. An approved one replaces the fact that it names, and its equals."""

    tenant: str
    fact_id: UUID
    decision: Decision
    decided_by: str
    decided_at: datetime
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class FactRetractedRow:
    """Remove the text of a fact."""

    tenant: str
    fact_id: UUID
