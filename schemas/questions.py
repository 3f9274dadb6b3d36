"""Requests and responses of `/v1/search` and `/v1/query`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import date
from typing import Annotated, Any, Literal, Self
from uuid import UUID

from pydantic import AfterValidator, Field, PrivateAttr

from schemas.budgets import ModelUsage, StoppedCall
from schemas.channels import Channel
from schemas.citations import AnswerHop, Citation, GraphFact, RelationHop
from schemas.exams import CalibrationBasis
from schemas.experiments import ExperimentArm
from schemas.facts import FactCitation
from schemas.judge_verdicts import JudgeVerdict
from schemas.models import Request
from schemas.planning import Intent
from schemas.profiles import QueryProfileType
from schemas.values import Language, Span, Value

RouteMode = Literal["vector", "graph", "hybrid"]
Mode = Literal["auto", RouteMode]

MAX_FILTER_ENTRIES = 1_000
MAX_FILTER_METADATA_BYTES = 64 * 1024
FilterText = Annotated[str, Field(max_length=1024)]


def _check_metadata_size(metadata: dict[str, Any]) -> dict[str, Any]:
    if len(metadata) > MAX_FILTER_ENTRIES:
        raise ValueError(f"{len(metadata)} keys exceed the limit of {MAX_FILTER_ENTRIES}")
    text = json.dumps(metadata, default=str, allow_nan=False)
    if (n_bytes := len(text)) > MAX_FILTER_METADATA_BYTES:
        raise ValueError(f"{n_bytes} bytes of JSON exceed the limit of {MAX_FILTER_METADATA_BYTES}")
    return metadata


class Filters(Value):
    """Restrict the search to documents that match all given conditions."""

    collections: list[FilterText] = Field([], max_length=MAX_FILTER_ENTRIES)
    """Documents in any of these collections."""
    tags: list[FilterText] = Field([], max_length=MAX_FILTER_ENTRIES)
    """Documents that have all of these tags."""
    document_ids: list[UUID] = Field([], max_length=MAX_FILTER_ENTRIES)
    """Documents with any of these ids."""
    external_ids: list[FilterText] = Field([], max_length=MAX_FILTER_ENTRIES)
    """Documents with any of these external ids."""
    languages: list[FilterText] = Field([], max_length=MAX_FILTER_ENTRIES)
    """Documents in any of these languages, as BCP 47 tags."""
    date_from: date | None = Field(None, description="Earliest `document_date`, inclusive.")
    date_to: date | None = Field(None, description="Latest `document_date`, inclusive.")
    metadata: Annotated[dict[str, Any], AfterValidator(_check_metadata_size)] = {}
    """Metadata keys and the values that they must equal. At most 64 KB of JSON."""


def has_word(text: str) -> bool:
    return any(character.isalnum() for character in text)


def _require_word(query: str) -> str:
    if not has_word(query):
        raise ValueError("the question contains no word")
    return query


ProfileName = Annotated[str, Field(min_length=1, max_length=200)]
QueryText = Annotated[str, Field(min_length=1, max_length=8000), AfterValidator(_require_word)]


class SearchRequest(Request):
    """A question to search for."""

    query: QueryText = Field(description="The question, in natural language or as keywords.")
    k: int = Field(10, ge=1, le=100, description="Maximum number of results.")
    mode: Mode = "auto"
    """Which channels to search: `vector` (lexical and semantic), `graph`, `hybrid` (all), or `auto`
    to choose by the question.
    """
    profile: ProfileName = "default"
    """Name of the workflow profile. If omitted, the default profile of the collections in the
    filters applies, if they have the same one.
    """
    profiles: dict[QueryProfileType, ProfileName] = {}
    """Profiles to use instead of those of the workflow, by type."""
    overrides: Annotated[dict[str, dict[str, Any]], AfterValidator(_check_metadata_size)] = {}
    """Settings by section, instead of those of the profiles: `{"fusion": {"method": "rrf"}}`.
    Redaction and prompts cannot be overridden.
    """
    filters: Filters = Field(Filters(), description="Conditions that the documents must match.")
    channels: list[Channel] | None = Field(None, min_length=1)
    """Search only these channels."""
    language: Language | None = None
    """Language of the question as a BCP 47 tag. Detected if omitted."""
    prefer_named: bool = True
    """Prefer documents whose title the question names. The response says which were preferred."""
    infer_filters: bool = True
    """Restrict the search to dates and tags that the question states about documents (`documents
    from 2024`, `#tax`). The response says which were applied.
    """
    generation: str | None = None
    """Search this generation instead of the live one."""
    explain: bool = Field(False, description="Add an explanation of the score to each result.")
    return_text: bool = Field(False, description="Add the whole text to each passage.")
    # Private, so that no caller can choose it.
    _arm: ExperimentArm | None = PrivateAttr(None)

    @property
    def arm(self) -> ExperimentArm | None:
        """The arm of the experiment that the question takes part in."""
        return self._arm

    def join_experiment(self, arm: ExperimentArm, profile: str) -> Self:
        """Return a copy that is answered with the profile of an arm."""
        joined = self.model_copy(update={"profile": profile})
        joined._arm = arm
        return joined


class ConversationTurn(Value):
    """A message before the question."""

    role: Literal["user", "assistant"] = Field(description="Who wrote it.")
    text: str = Field(max_length=8000, description="The message.")


class QueryRequest(SearchRequest):
    """A question to answer."""

    history: list[ConversationTurn] = Field([], max_length=50)
    """The conversation before the question, the oldest turn first. What the question leaves to it
    is filled in before the search; `trace.plan.question` is the result.
    """
    stream: bool = Field(False, description="Respond with server-sent events.")
    return_context: bool = True
    """Include the passages that the answer was based on."""
    debug: bool = False
    """Include every candidate and every number that entered a score."""


class ChannelRank(Value):
    """Rank and score of a passage in one channel."""

    rank: int = Field(description="Rank in the channel, from 1.")
    score: float = Field(description="Score in the channel.")


class SearchResult(Value):
    """A ranked passage (parent chunk)."""

    rank: int = Field(description="Position in the results, from 1.")
    score: float = Field(description="Final score. Scores are comparable only within one response.")
    document_id: UUID = Field(description="Id of the document.")
    external_id: str | None = Field(description="The producer's id of the document.")
    revision: int = Field(description="Revision of the document.")
    title: str | None = Field(description="Title of the document.")
    source_uri: str | None = Field(description="URI of the original.")
    link: str = Field(description="Link that opens the document at this passage.")
    chunk_id: UUID = Field(description="Best-matching child chunk.")
    parent_id: UUID = Field(description="Id of the passage.")
    section: str = Field(description="Heading path of the passage.")
    pages: list[int] = Field(description="Pages of the passage, from 1.")
    spans: list[Span] = Field(description="Position of the best-matching chunk in the document.")
    snippet: str = Field(description="Excerpt of the passage.")
    text: str | None = None
    """Whole text of the passage. Only with `return_text`; runs do not store it."""
    channels: dict[Channel, ChannelRank]
    """Rank and score in each channel that found the passage."""
    duplicates: list[UUID] = []
    """Documents whose nearly identical passage was folded into this one."""
    explanation: dict[str, Any] | None = None
    """Every number that entered the score. Only with `explain`."""


class Route(Value):
    """How the question was routed to channels."""

    mode: RouteMode = Field(description="Mode that was used.")
    decided_by: Literal["request", "rules", "model"]
    """Whether the request, rules or a model selected the mode."""
    reason: str = Field(description="Why the mode was selected.")
    escalated_from: str | None = None
    """First mode, if its results were insufficient."""


class PlanTrace(Value):
    """How the question was analyzed."""

    question: str | None = None
    """The question that was searched for, if `history` changed it."""
    intent: Intent = Field(description="What the question wants.")
    decided_by: Literal["rules", "model"]
    """Whether rules or a model planned the search."""
    keywords: list[str] = Field(description="Words that the lexical channel searched.")
    semantic_query: str = Field(description="Text that was embedded.")
    filters: Filters | None = None
    """The filters with those that the question states, if it states any."""
    weights: dict[Channel, float] = Field({}, description="Factors on the weights of channels.")
    k: dict[Channel, int] = Field({}, description="Candidates that replace those of the profile.")
    widen: float = Field(1.0, description="Factor on the candidates of every channel.")
    cypher: str | None = None
    """Query for the graph server that the chat model wrote, if it was usable."""


class ChannelTrace(Value):
    """Result of one channel."""

    k: int = Field(description="Maximum number of candidates.")
    returned: int = Field(description="Candidates returned.")
    best: float | None = Field(description="Best score, or null without candidates.")
    ms: float = Field(description="Duration in milliseconds.")
    served_by: Literal["sql", "bolt", "cypher"] | None = None
    """For the graph: `sql` if relations were followed in the tables, `bolt` on the graph server,
    `cypher` if the chat model's query found the candidates there.
    """


class GraphFactsTrace(Value):
    """Relations and claims that were read with the passages."""

    found: int = Field(description="Chosen from the graph.")
    read: int
    """Read: those whose quote was verified and that fit into the token budget."""
    tokens: int = Field(description="Their share of the token budget, estimated.")


class Trace(Value):
    """How the response was produced."""

    generation: str = Field(description="Generation that was searched.")
    profile: str = Field(description="Profile that was used.")
    plan: PlanTrace | None = Field(None, description="Analysis of the question.")
    route: Route = Field(description="Routing of the question to channels.")
    channels: dict[Channel, ChannelTrace] = Field(description="Result of each channel.")
    channels_used: list[Channel] = Field(description="Channels that contributed candidates.")
    channels_failed: dict[Channel, str]
    """Channels that failed, with the reason."""
    graph_facts: GraphFactsTrace | None = None
    """Relations and claims read with the passages, if the graph has any."""
    missing_collections: list[str] = []
    """Collections of the filters that do not exist."""
    lexical: Literal["exact", "bounded"] | None = None
    """`exact` if no unseen chunk could be among the best, `bounded` if the candidate budget cut the
    search short.
    """
    timings_ms: dict[str, float] = Field(description="Duration of each step in milliseconds.")
    reranker: str | None = Field(description="Reranker that was used.")
    max_rerank_score: float | None
    """Best score of the reranker, above `rerank_background`."""
    rerank_background: float = 0.0
    """Score that any passage would reach. It is subtracted before scores are compared with
    `threshold`; `explanation.rerank_score` of a result contains it.
    """
    threshold: float | None = Field(description="Score below which the question is refused.")
    calibrated: bool = False
    """Whether thresholds that were learned for this generation were used."""
    calibration: CalibrationBasis = "uncalibrated"
    """Source of the thresholds of refusal and trimming."""
    models: dict[str, str] = Field({}, description="Models that were called, by task.")
    model_calls: int = 0
    """Requests to model servers that were answered, or may have been: for chat, embeddings and
    reranking. `usage` also lists failed ones, and calls of local models.
    """
    rerank_requests: int = 0
    """Requests to a rerank server, retries not included."""
    tokens: int = Field(0, description="Input and output tokens of these requests.")
    cost: float | None = None
    """Cost of these requests, 0 if there were none. Null if a model has no price; `unpriced` names
    it.
    """
    currency: str | None = Field(None, description="Currency of the cost (ISO 4217).")
    unpriced: list[str] = []
    """Models that were called and are not in `PRICES__MODELS`."""
    usage: list[ModelUsage] = Field([], description="Calls by task and model.")
    stopped: list[StoppedCall] = []
    """Calls that were not made, since a cap of the profile's `budget` does not allow them. Their
    steps did without the model.
    """
    cached: bool = False
    """Whether the answer came from the cache. Route, channels, scores and notes are then those of
    the cached answer; durations and model calls are those of this request.
    """
    notes: list[str] = []
    """Remarks for people about this response, such as entities that are still being indexed."""


def _score_confidence(values: Mapping[str, Any]) -> float:
    place = ("low", "medium", "high").index(values["level"])
    probability = values["probability"]
    return (place + (0.5 if probability is None else float(probability))) / 3


class Confidence(Value):
    """How far the answer can be trusted, and why."""

    level: Literal["high", "medium", "low"] = Field(description="Level of confidence.")
    reasons: list[str] = Field(description="Reasons for the level.")
    probability: float | None = None
    """Estimated probability that the quoted answer is right, by a model that was calibrated on
    public questions. Null when the passages have no token states to judge by.
    """
    score: float = Field(default_factory=_score_confidence)
    """A number from 0 to 1 to sort and cut answers by. The level counts first: low ends at 1/3 and
    medium at 2/3. Within a level the `probability` counts. So it falls when documents disagree or
    a check fails, and is no probability itself.
    """


class SearchResponse(Value):
    """Ranked passages for a question."""

    run_id: UUID = Field(description="Id of this run, for `/v1/runs` and feedback.")
    generation: str = Field(description="Generation that was searched.")
    results: list[SearchResult] = Field(description="Passages, best first.")
    redacted: int = 0
    """Places in this response where a personal identifier is masked."""
    trace: Trace = Field(description="How the response was produced.")


RefusalCode = Literal[
    "NO_SUITABLE_CONTEXT", "NO_SUCH_COLLECTION", "INSUFFICIENT_CONTEXT", "JUDGE_BLOCKED"
]


class DebugInfo(Value):
    """Debug data, as recorded on topic `queries`."""

    candidates: list[dict[str, Any]]
    """Candidates of every channel with their scores."""
    numbers: dict[str, Any] = Field(description="Every number that entered a score.")


class ConflictingValue(Value):
    """One of the values between which the documents disagree."""

    value: str = Field(description="The number or date, as the document writes it.")
    citations: list[int] = Field(description="Numbers of the citations that state it.")


class Conflict(Value):
    """A number or date on which documents disagree."""

    values: list[ConflictingValue] = Field(description="The values, the best source first.")


class QueryResponse(Value):
    """An answer with citations, or a refusal."""

    run_id: UUID = Field(description="Id of this run, for `/v1/runs` and feedback.")
    generation: str = Field(description="Generation that was searched.")
    answer: str | None = Field(description="The answer, or null if the question was refused.")
    refused: bool = Field(description="Whether the question was refused.")
    code: RefusalCode | None = Field(None, description="Why the question was refused.")
    message: str | None = Field(None, description="Explanation of the refusal for people.")
    language: str | None = Field(None, description="Language of the question as a BCP 47 tag.")
    citations: list[Citation] = Field(description="Quotes that support the answer.")
    facts: list[FactCitation] = []
    """Facts that the answer rests on, which people or applications stated: `[F1]` in its text. No
    document is cited for them.
    """
    contexts: list[SearchResult] = []
    """Passages that the answer was based on. Empty without `return_context`."""
    path: list[AnswerHop] = []
    """Steps from documents that the question names to others that the answer was based on."""
    relation_path: list[RelationHop] = []
    """One or two relations that connect two entities of a question about their relation, in order,
    each with its citation. Empty if the graph knows none.
    """
    graph_facts: list[GraphFact] = []
    """Relations and claims that were read with the passages. Empty without `return_context`."""
    judge: JudgeVerdict | None = Field(None, description="Checks of the answer, if a judge ran.")
    confidence: Confidence = Field(description="How far the answer can be trusted.")
    conflicts: list[Conflict] = []
    """Numbers and dates on which the cited documents disagree."""
    assumptions: list[str] = Field([], description="Assumptions that the answer makes.")
    limitations: list[str] = Field([], description="Limitations of the answer.")
    redacted: int = 0
    """Places in this response where a personal identifier is masked."""
    trace: Trace = Field(description="How the response was produced.")
    debug: DebugInfo | None = Field(None, description="Debug data. Only with `debug`.")


class StepProgress(Value):
    """A step of a query started or ended. A step that runs twice is reported twice."""

    name: str
    """One of `plan`, `link`, `channels`, `chunks`, `fuse`, `bridge`, `terms`, `rerank`, `read`,
    `evidence`, `answer` and `judge`.
    """
    ms: float | None = None
    """Duration in milliseconds, or null when the step starts."""


class AnswerDelta(Value):
    """The next words of an answer while the model writes it.

    Deltas are unverified; only the final answer counts.
    """

    draft: int
    """Number of the draft, from 1. When it grows, the model has restarted: discard the deltas of
    earlier drafts.
    """
    text: str = Field(description="Text to append to the draft.")


Progress = StepProgress | AnswerDelta
OnProgress = Callable[[Progress], None]
"""Receives the progress of a query. Must not block."""


def ignore_progress(progress: Progress) -> None:
    """Ignore progress, for callers that need only the answer."""
