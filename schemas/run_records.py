"""Run records: the inputs of an answer besides its candidates, so that the run can be repeated.

They reference texts of documents by hash and never contain them.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from datetime import datetime
from typing import Any, Literal, TypedDict, get_args
from uuid import UUID

from pydantic import Field

from schemas.budgets import ModelUsage
from schemas.channels import Channel
from schemas.citations import GraphEvidence, GraphFact
from schemas.experiments import Arm
from schemas.facts import FactCitation
from schemas.judge_verdicts import CheckName, JudgeVerdict
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
    closeness: list[float] | None = None
    """Scores of the sentences that were compared, in their order. Null if the selection used words
    alone.
    """
    sentence_citations: list[list[int]] = []
    """Numbers of the citations of each sentence, in order."""
    reply: RecordedReply | None = None
    judge_reply: RecordedReply | None = Field(None, description="The reply of the judge model.")
    judge_error: str | None = Field(None, description="Why the judge model gave no reply.")
    rejected: RejectedDraft | None = None
    """The first attempt, if the answer was written once more."""
    assumptions: list[str] = []
    limitations: list[str] = []
    calls: int = 0
    tokens: int = 0


FORMER_SETTINGS: Mapping[str, Any] = {
    "lexical.foreign_below": 200,
    "graph.damping": 0.5, "graph.fuzzy_letters": 5, "graph.max_mentions": 2_000,
    "graph.claim_chunks": 50,
    "fusion.min_candidates": 20, "fusion.named_documents": 3, "fusion.rrf_bridged": 1.0,
    "rerank.sentences": 24, "rerank.smoothing": 0.0, "rerank.neighbors": 5,
    "answer.relevance.passages": 3, "answer.relevance.foreign_factor": 0.85,
    "answer.relevance.usual_coverage": 0.75, "answer.relevance.word_weight": 0.5,
    "answer.relevance.few_keywords": 4, "answer.relevance.max_rise": 0.15,
    "answer.relevance.min_coverage": 0.25, "answer.relevance.clear_factor": 1.2,
    "answer.max_quotes": 3, "answer.quote_distance": 2.0, "answer.quotes_per_sentence": 2,
    "answer.sources_per_quote": 5, "answer.conflict_distance": 8.0,
    "facts.min_certainty": 0.3, "facts.min_coverage": 0.6,
    **{f"judge.{name}.model_threshold": 0.5 for name in get_args(CheckName)},
}  # fmt: skip
"""Settings that profiles no longer have, and the values that the program has in their place."""


def move_former_settings(run_record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record of any version without former settings in its profile.

    `former_settings` holds those of another value than the program has.
    """
    profile, moved = deepcopy(run_record["profile"]), dict(run_record.get("former_settings", {}))
    for name, value in FORMER_SETTINGS.items():
        *sections, key = name.split(".")
        settings = profile
        for section in sections:
            settings = settings.get(section, {})
        if (recorded := settings.pop(key, value)) != value:
            moved[name] = recorded
    # Not only its settings: the section is gone.
    profile.get("answer", {}).pop("relevance", None)
    return {**run_record, "profile": profile, "former_settings": moved}


class RunRecord(Value):
    """Inputs of the steps from fusion on, besides the candidates and their scores."""

    profile: Profile
    former_settings: dict[str, Any] = {}
    """Settings that profiles no longer have, by dotted name, if the run had another value than the
    program has now.
    """
    question: str
    language: str | None = None
    language_sure: bool = Field(description="Whether the language was detected with confidence.")
    keywords: list[str]
    further: str = ""
    """Words that the chat model asked to search for, instead of the question."""
    complete: list[Channel] = Field(description="Channels that returned all their matches.")
    linked: list[str] = Field(description="Keys of the entities that the question names.")
    parents: list[RecordedParent]
    chunks: list[RecordedChunk]
    draft: RecordedDraft | None = None
    """How the answer was written. Null if there was no answer."""
    facts: list[FactCitation] = []
    """Facts that were offered. Erasing one erases the runs that hold it."""
    graph_evidence: list[GraphEvidence] = []
    """Relations and claims of the graph that were offered, without their texts."""
    assumptions: list[str] = Field([], description="Assumptions about the documents meant.")
    missing_collections: list[str] = []
    """Collections in the filters that no document has."""
    prompts: dict[str, str] = {}
    """SHA-256 of each prompt that was sent to a model, by task."""


StoppedState = Literal["failed", "timed_out", "cancelled", "interrupted"]
RunOutcome = Literal["answered", "refused", "running", "stopped"]


class RunFilters(TypedDict, total=False):
    """Conditions that runs must meet, those of GET /v1/runs."""

    text: str | None
    outcome: RunOutcome | None
    profile: str | None
    since: datetime | None
    until: datetime | None
    id_prefix: str | None


class GraphBullet(Value):
    """A sentence about the graph around an answer."""

    text: str
    citations: list[int] = Field(description="Numbers of `citations` that support it.")


class GraphSummary(Value):
    """Summary, in cited bullets, of the relations and claims that an answer was made from."""

    run_id: UUID
    bullets: list[GraphBullet]
    citations: list[GraphFact] = Field(description="The cited relations and claims.")
    warnings: list[str] = Field([], description="Bullets that were removed, and why.")
    model: str = Field(description="Chat model that wrote it.")
    prompt_sha256: str = Field(description="SHA-256 of the system message.")
    model_calls: int
    tokens: int = Field(description="Input and output tokens of these calls.")
    cost: float | None = Field(description="Cost of these calls, or null without a price.")
    currency: str | None
    usage: list[ModelUsage]
    cached: bool = False
    """Whether the summary came from the cache, so that no model was called."""


class RunTelemetry(Value):
    """The measurements of a run: one line of an export."""

    run_id: UUID
    kind: Literal["query", "search"] | None
    received_at: datetime | None
    answered_at: datetime | None
    state: str | None = Field(description="Null for a query that was not started as a run.")
    query: str | None = Field(description="The question. Null after an erasure.")
    profile: str | None
    generation: str | None
    mode: str | None = Field(description="Mode that was searched: vector, graph or hybrid.")
    refused: bool | None
    code: str | None = Field(description="Why the question was refused.")
    confidence: float | None = Field(description="Probability that the answer is right.")
    k: int | None = Field(description="Requested number of results.")
    sources: int | None = Field(description="Documents among the passages of the response.")
    mean_score: float | None = Field(description="Mean score of these passages.")
    max_rerank_score: float | None
    graph_nodes: int | None = Field(description="Entities of the graph facts that were read.")
    graph_edges: int | None = Field(description="Relations that were read.")
    latency_ms: float | None
    model_calls: int | None
    tokens: int | None = Field(description="Input and output tokens of these calls.")
    cost: float | None
    currency: str | None
    cached: bool | None = Field(description="Whether the answer came from the cache.")
    arm: Arm | None = Field(description="Arm of the experiment that the question took part in.")
    useful: bool | None = Field(description="The last feedback on the answer.")


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

    cause: ChangeCause
    """`document`: added, revised or removed. `generation`: processed by other stages. `ranking`:
    same passage, other competitors. `profile` and `request`: other settings.
    """
    detail: str = Field(description="Explanation for people.")


class PassageChange(Value):
    """A passage that was read for either answer."""

    parent_id: UUID = Field(description="Id of the passage.")
    chunk_id: UUID = Field(description="Best-matching child chunk.")
    document_id: UUID = Field(description="Id of the document.")
    external_id: str | None = Field(description="The producer's id of the document.")
    title: str | None = Field(description="Title of the document.")
    section: str = Field(description="Heading path of the passage.")
    rank_then: int | None
    """Rank in the earlier answer. Null if it was not read."""
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
    profile_changes: dict[str, tuple[Any, Any]]
    """Changed settings of the profile: earlier and later value."""
    request_changes: dict[str, tuple[Any, Any]]
    """Changed fields of the request: earlier and later value."""
    reasons: list[ChangeReason] = Field(description="Distinct causes, the most important first.")


class FlippingDocument(Value):
    """The document whose change flipped an answer, and where the log received it."""

    document_id: UUID
    title: str = Field(description="Title, external id or id of the document.")
    revision_then: int | None = Field(description="Revision of the earlier run. Null: none.")
    revision_now: int | None = Field(description="Revision of the later run. Null: none.")
    topic: str | None = Field(description="Topic of the later revision's event.")
    partition: int | None
    offset: int | None


class Bisection(Value):
    """The change between two runs of a question that flipped its answer."""

    question: str
    then: ComparedRun = Field(description="The earlier run.")
    now: ComparedRun = Field(description="The later run.")
    reason: ChangeReason = Field(description="The change that flipped the answer.")
    document: FlippingDocument | None = Field(None, description="The document of the change.")
    before: str | None
    """The answer without this change, in quotes. Null if it was refused."""
    after: str | None = Field(description="The answer with it, in quotes. Null if it was refused.")
    changes: int = Field(description="Changes between the two runs or positions.")
    reruns: int
    """How often the question was answered between them: at most the logarithm of `changes`."""


LeftOutOutcome = Literal["unchanged", "other_value", "other_words", "unsupported"]


class LeftOutDocument(Value):
    """A cited document, and what the answer would be without it."""

    document_id: UUID
    external_id: str | None = Field(description="The producer's id of the document.")
    title: str | None = Field(description="Title of the document.")
    revision: int = Field(description="Revision that was cited.")
    citations: list[int] = Field(description="Numbers of its citations in the recorded answer.")
    outcome: LeftOutOutcome
    """`unchanged`: other documents state the same. `other_value`: they state another value.
    `other_words`: another sentence takes its place, without a value to compare. `unsupported`:
    nothing that was read states it.
    """
    answer: str | None
    """The answer without the document, in quotes. Null if nothing supports one."""
    value: str | None = Field(None, description="The other value, as the passage has it.")
    said_by: str | None = Field(None, description="Title of the document that says otherwise.")
    said_in_revision: int | None = Field(None, description="Revision of that document.")


class CounterfactualAnswer(Value):
    """Support of an answer: the question is answered again without each cited document."""

    run_id: UUID
    answer: str | None = Field(description="The answer from all recorded passages, in quotes.")
    is_quoted: bool
    """False if a chat model wrote the recorded answer: quotes stand in for its words."""
    verdict: Literal["one_document", "confirmed", "contested", "unknown"]
    """`contested`: documents state different values. `unknown`: no sentence could be compared."""
    confirming: list[UUID]
    """Documents that state the same as the answer, cited or not."""
    documents: list[LeftOutDocument] = Field(description="Each cited document, left out.")
    summary: str = Field(description="The verdict in words.")


class CurrentDocument(Value):
    """The current state of a document that an earlier answer used.

    `visible_revision` is None if it is no longer visible.
    """

    visible_revision: int | None
    state: str
