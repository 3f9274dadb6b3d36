"""Run records: the inputs of an answer besides its candidates, so that the run can be repeated.

They reference texts of documents by hash and never contain them.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BeforeValidator, Field

from schemas.channels import Channel
from schemas.facts import FactCitation
from schemas.graph_facts import GraphEvidence
from schemas.judge_verdicts import JudgeVerdict
from schemas.profiles import Profile
from schemas.values import Value


class RecordedChunk(Value):
    """A child chunk as it was at the time of the answer."""

    id: UUID
    parent_id: UUID
    document_id: UUID
    order: list[int]
    revision: int
    external_id: str | None = None
    title: str | None = None
    source_uri: str | None = None
    language: str | None = None
    kind: str
    prefix: str
    char_start: int
    char_end: int
    spans: list[dict[str, Any]]
    ordinal: int
    text_sha256: str = Field(description="Hash of the text as UTF-8.")


class RecordedParent(Value):
    """A parent chunk as it was at the time of the answer."""

    id: UUID
    document_id: UUID
    section: str
    char_start: int
    char_end: int
    pages: list[int]
    tokens: int
    ordinal: int
    text_sha256: str = Field(description="Hash of the text as UTF-8.")
    children: list[UUID] = Field([], description="Child chunks that could be quoted.")
    warning_codes: list[str] = Field([], description="Codes of the warnings of its document.")


class RecordedReply(Value):
    """The reply of the chat model."""

    data: dict[str, Any]
    model: str
    calls: int
    tokens: int


class RejectedDraft(Value):
    """An attempt that the judge rejected."""

    reply: RecordedReply | None = Field(None, description="The reply of the chat model.")
    verdict: JudgeVerdict


class RecordedDraft(Value):
    """How the answer was written."""

    model: str
    closeness: list[float] | None = Field(
        None,
        description=(
            "Scores of the sentences that were compared, in their order. Null if the selection "
            "used words alone."
        ),
    )
    sentence_citations: list[list[int]] = Field(
        [], description="Numbers of the citations of each sentence, in order."
    )
    reply: RecordedReply | None = None
    judge_reply: RecordedReply | None = Field(None, description="The reply of the judge model.")
    judge_error: str | None = Field(None, description="Why the judge model gave no reply.")
    rejected: RejectedDraft | None = Field(
        None, description="The first attempt, if the answer was written once more."
    )
    assumptions: list[str] = []
    limitations: list[str] = []
    calls: int = 0
    tokens: int = 0


FORMER_SETTINGS = {"rerank": ("smoothing", "neighbors")}
"""Settings that profiles no longer have, by section. Recorded runs hold them."""


def _drop_former_settings(profile: Any) -> Any:
    if not isinstance(profile, dict):
        return profile
    return {
        section: {
            name: value
            for name, value in settings.items()
            if name not in FORMER_SETTINGS.get(section, ())
        }
        if isinstance(settings, dict)
        else settings
        for section, settings in profile.items()
    }


class RunRecord(Value):
    """Inputs of the steps from fusion on, besides the candidates and their scores."""

    profile: Annotated[Profile, BeforeValidator(_drop_former_settings)]
    question: str
    language: str | None = None
    language_sure: bool = Field(description="Whether the language was detected with confidence.")
    keywords: list[str]
    further: str = Field(
        "", description="Words that the chat model asked to search for, instead of the question."
    )
    complete: list[Channel] = Field(description="Channels that returned all their matches.")
    linked: list[str] = Field(description="Keys of the entities that the question names.")
    parents: list[RecordedParent]
    chunks: list[RecordedChunk]
    draft: RecordedDraft | None = Field(
        None, description="How the answer was written. Null if there was no answer."
    )
    facts: list[FactCitation] = Field(
        [], description="Facts that were offered. Erasing one erases the runs that hold it."
    )
    graph_evidence: list[GraphEvidence] = Field(
        [], description="Relations and claims of the graph that were offered, without their texts."
    )
    assumptions: list[str] = Field([], description="Assumptions about the documents meant.")
    missing_collections: list[str] = Field(
        [], description="Collections in the filters that no document has."
    )
    prompts: dict[str, str] = Field(
        {}, description="SHA-256 of each prompt that was sent to a model, by task."
    )


StoppedState = Literal["failed", "timed_out", "cancelled", "interrupted"]
RunOutcome = Literal["answered", "refused", "running", "stopped"]


class RunStep(Value):
    """A step started or ended."""

    number: int = Field(description="Number of the event in its run, from 1, with gaps.")
    step: str = Field(description="Name of the step.")
    occurred_at: datetime
    ms: float | None = Field(description="Duration in ms, or null when the step starts.")


class StoppedRun(Value):
    """Why a run ended without an answer."""

    state: StoppedState = Field(description="`interrupted`: the process that ran it ended.")
    stopped_at: datetime
    step: str | None = Field(description="Step that was reported last.")
    code: str = Field(description="Code of the error.")
    detail: str = Field(description="What happened.")
    remedy: str = Field(description="What to do.")


class OrphanedRun(Value):
    """A run whose process ended before the run did."""

    run_id: UUID
    tenant: str
    step: str | None = Field(description="Step that was reported last.")


class RunStatus(Value):
    """State and progress of a run."""

    run_id: UUID
    state: Literal["running", "completed", StoppedState]
    started_at: datetime | None
    ended_at: datetime | None
    steps: list[RunStep] = Field(description="Starts and ends of steps, in order.")
    error: StoppedRun | None = Field(description="Why there is no answer.")


class RunMessage(Value):
    """A message of the stream of a run. Without an id, it is not sent again."""

    event: Literal["step", "delta", "answer", "stopped", "working"]
    id: str | None = None
    data: dict[str, Any] = {}


ChangeCause = Literal["document", "generation", "profile", "request", "ranking"]


class ChangeReason(Value):
    """Cause of a difference."""

    cause: ChangeCause = Field(
        description=(
            "`document`: added, revised or removed. `generation`: processed by other stages. "
            "`ranking`: same passage, other competitors. `profile` and `request`: other settings."
        )
    )
    detail: str = Field(description="Explanation for people.")


class PassageChange(Value):
    """A passage that was read for either answer."""

    parent_id: UUID = Field(description="Id of the passage.")
    chunk_id: UUID = Field(description="Best-matching child chunk.")
    document_id: UUID = Field(description="Id of the document.")
    external_id: str | None = Field(description="The producer's id of the document.")
    title: str | None = Field(description="Title of the document.")
    section: str = Field(description="Heading path of the passage.")
    rank_then: int | None = Field(
        description="Rank in the earlier answer. Null if it was not read."
    )
    rank_now: int | None = Field(description="Rank in the later answer. Null if it was not read.")
    reason: ChangeReason | None = Field(None, description="Why the passage is new, gone or moved.")


class ComparedRun(Value):
    """One of the two runs."""

    run_id: UUID = Field(description="Id of the run.")
    generation: str = Field(description="Generation that was searched.")
    profile: str = Field(description="Profile that was used.")
    answered_at: str | None = Field(description="When the question was answered.")
    answer: str | None = Field(description="The answer.")
    refused: bool | None = Field(description="Whether the question was refused.")
    code: str | None = Field(description="Why the question was refused.")


class RunDiff(Value):
    """Differences between two runs."""

    question: str = Field(description="The question.")
    then: ComparedRun = Field(description="The earlier run.")
    now: ComparedRun = Field(description="The later run.")
    same: bool = Field(description="Whether answer, citations and the order of passages are equal.")
    answer_changed: bool = Field(description="Whether the answer differs.")
    citations_changed: bool = Field(description="Whether the citations differ.")
    moved: list[PassageChange] = Field(description="Passages whose rank changed.")
    added: list[PassageChange] = Field(description="Passages that only the later answer read.")
    removed: list[PassageChange] = Field(description="Passages that only the earlier answer read.")
    profile_changes: dict[str, tuple[Any, Any]] = Field(
        description="Changed settings of the profile: earlier and later value."
    )
    request_changes: dict[str, tuple[Any, Any]] = Field(
        description="Changed fields of the request: earlier and later value."
    )
    reasons: list[ChangeReason] = Field(description="Distinct causes, the most important first.")


class CurrentDocument(Value):
    """The current state of a document that an earlier answer used.

    `visible_revision` is None if it is no longer visible.
    """

    visible_revision: int | None
    state: str
