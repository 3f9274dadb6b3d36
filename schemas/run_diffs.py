"""What differs between two answers to a question, and why."""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

from pydantic import Field

from schemas.values import Value

ChangeCause = Literal["document", "generation", "profile", "request", "ranking"]


class ChangeReason(Value):
    """`document`: another revision, gone, or new. `generation`: made by other stages. `ranking`: the same passage among other competitors."""

    cause: ChangeCause
    detail: str


class PassageChange(Value):
    """A passage that was read for one answer or both. A rank is null where it was not read."""

    parent_id: UUID
    chunk_id: UUID
    document_id: UUID
    external_id: str | None
    title: str | None
    section: str
    rank_then: int | None
    rank_now: int | None
    reason: ChangeReason | None = Field(None, description="why it is new, gone or moved")


class ComparedRun(Value):
    """One of the two answers."""

    run_id: UUID
    generation: str
    profile: str
    answered_at: str | None
    answer: str | None
    refused: bool | None
    code: str | None


class RunDiff(Value):
    """`same`: answer, citations and the order of passages are equal."""

    question: str
    then: ComparedRun
    now: ComparedRun
    same: bool
    answer_changed: bool
    citations_changed: bool
    moved: list[PassageChange]
    new: list[PassageChange]
    gone: list[PassageChange]
    profile_changes: dict[str, tuple[Any, Any]] = Field(description="setting → then, now")
    request_changes: dict[str, tuple[Any, Any]]
    reasons: list[ChangeReason] = Field(description="each once, the most telling first")


class CurrentDocument(Value):
    """What became of a document since. A `visible_revision` of null answers no question."""

    visible_revision: int | None
    state: str
