"""Requests and responses of `/v1/search` and `/v1/query`."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from schemas.budgets import ModelUsage, StoppedCall
from schemas.channels import Channel
from schemas.citations import AnswerHop, Citation, GraphFact, RelationHop
from schemas.exams import CalibrationBasis
from schemas.facts import FactCitation
from schemas.judge_verdicts import JudgeVerdict
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
    if (n_bytes := len(json.dumps(metadata, default=str).encode())) > MAX_FILTER_METADATA_BYTES:
        raise ValueError(f"{n_bytes} bytes of JSON exceed the limit of {MAX_FILTER_METADATA_BYTES}")
    return metadata


class Filters(Value):
    """Restrict the search to documents that match all given conditions."""

    collections: list[FilterText] = Field(
        [], max_length=MAX_FILTER_ENTRIES, description="Documents in any of these collections."
    )
    tags: list[FilterText] = Field(
        [], max_length=MAX_FILTER_ENTRIES, description="Documents that have all of these tags."
    )
    document_ids: list[UUID] = Field(
        [], max_length=MAX_FILTER_ENTRIES, description="Documents with any of these ids."
    )
    external_ids: list[FilterText] = Field(
        [], max_length=MAX_FILTER_ENTRIES, description="Documents with any of these external ids."
    )
    languages: list[FilterText] = Field(
        [],
        max_length=MAX_FILTER_ENTRIES,
        description="Documents in any of these languages, as BCP 47 tags.",
    )
    date_from: date | None = Field(None, description="Earliest `document_date`, inclusive.")
    date_to: date | None = Field(None, description="Latest `document_date`, inclusive.")
    metadata: Annotated[dict[str, Any], AfterValidator(_check_metadata_size)] = Field(
        {}, description="Metadata keys and the values that they must equal. At most 64 KB of JSON."
    )


def has_word(text: str) -> bool:
    return any(character.isalnum() for character in text)


def _require_word(query: str) -> str:
    if not has_word(query):
        raise ValueError("the question contains no word")
    return query


ProfileName = Annotated[str, Field(min_length=1, max_length=200)]
QueryText = Annotated[str, Field(min_length=1, max_length=8000), AfterValidator(_require_word)]


class SearchRequest(BaseModel):
    """A question to search for."""

    model_config = ConfigDict(extra="forbid")

    query: QueryText = Field(description="The question, in natural language or as keywords.")
    k: int = Field(10, ge=1, le=100, description="Maximum number of results.")
    mode: Mode = Field(
        "auto",
        description=(
            "Which channels to search: `vector` (lexical and semantic), `graph`, `hybrid` (all), "
            "or `auto` to choose by the question."
        ),
    )
    profile: ProfileName = Field(
        "default",
        description=(
            "Name of the workflow profile. If omitted, the default profile of the collections in "
            "the filters applies, if they have the same one."
        ),
    )
    profiles: dict[QueryProfileType, ProfileName] = Field(
        {}, description="Profiles to use instead of those of the workflow, by type."
    )
    overrides: Annotated[dict[str, dict[str, Any]], AfterValidator(_check_metadata_size)] = Field(
        {},
        description=(
            "Settings by section, instead of those of the profiles: "
            '`{"fusion": {"method": "rrf"}}`. Redaction and prompts cannot be overridden.'
        ),
    )
    filters: Filters = Field(Filters(), description="Conditions that the documents must match.")
    channels: list[Channel] | None = Field(
        None, min_length=1, description="Search only these channels."
    )
    language: Language | None = Field(
        None, description="Language of the question as a BCP 47 tag. Detected if omitted."
    )
    prefer_named: bool = Field(
        True,
        description=(
            "Prefer documents whose title the question names. The response says which were "
            "preferred."
        ),
    )
    infer_filters: bool = Field(
        True,
        description=(
            "Restrict the search to dates and tags that the question states about documents "
            "(`documents from 2024`, `#tax`). The response says which were applied."
        ),
    )
    generation: str | None = Field(
        None, description="Search this generation instead of the live one."
    )
    explain: bool = Field(False, description="Add an explanation of the score to each result.")


class ConversationTurn(Value):
    """A message before the question."""

    role: Literal["user", "assistant"] = Field(description="Who wrote it.")
    text: str = Field(max_length=8000, description="The message.")


class QueryRequest(SearchRequest):
    """A question to answer."""

    history: list[ConversationTurn] = Field(
        [],
        max_length=50,
        description=(
            "The conversation before the question, the oldest turn first. What the question leaves "
            "to it is filled in before the search; `trace.plan.question` is the result."
        ),
    )
    stream: bool = Field(False, description="Respond with server-sent events.")
    return_context: bool = Field(
        True, description="Include the passages that the answer was based on."
    )
    debug: bool = Field(
        False, description="Include every candidate and every number that entered a score."
    )


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
    channels: dict[Channel, ChannelRank] = Field(
        description="Rank and score in each channel that found the passage."
    )
    duplicates: list[UUID] = Field(
        default=[], description="Documents whose nearly identical passage was folded into this one."
    )
    explanation: dict[str, Any] | None = Field(
        None, description="Every number that entered the score. Only with `explain`."
    )


class Route(Value):
    """How the question was routed to channels."""

    mode: RouteMode = Field(description="Mode that was used.")
    decided_by: Literal["request", "rules", "model"] = Field(
        description="Whether the request, rules or a model selected the mode."
    )
    reason: str = Field(description="Why the mode was selected.")
    escalated_from: str | None = Field(
        None, description="First mode, if its results were insufficient."
    )


class PlanTrace(Value):
    """How the question was analyzed."""

    question: str | None = Field(
        None, description="The question that was searched for, if `history` changed it."
    )
    intent: Intent = Field(description="What the question wants.")
    decided_by: Literal["rules", "model"] = Field(
        description="Whether rules or a model planned the search."
    )
    keywords: list[str] = Field(description="Words that the lexical channel searched.")
    semantic_query: str = Field(description="Text that was embedded.")
    filters: Filters | None = Field(
        None, description="The filters with those that the question states, if it states any."
    )
    weights: dict[Channel, float] = Field({}, description="Factors on the weights of channels.")
    k: dict[Channel, int] = Field({}, description="Candidates that replace those of the profile.")
    widen: float = Field(1.0, description="Factor on the candidates of every channel.")
    cypher: str | None = Field(
        None, description="Query for the graph server that the chat model wrote, if it was usable."
    )


class ChannelTrace(Value):
    """Result of one channel."""

    k: int = Field(description="Maximum number of candidates.")
    returned: int = Field(description="Candidates returned.")
    best: float | None = Field(description="Best score, or null without candidates.")
    ms: float = Field(description="Duration in milliseconds.")
    served_by: Literal["sql", "bolt", "cypher"] | None = Field(
        None,
        description=(
            "For the graph: `sql` if relations were followed in the tables, `bolt` on the graph "
            "server, `cypher` if the chat model's query found the candidates there."
        ),
    )


class GraphFactsTrace(Value):
    """Relations and claims that were read with the passages."""

    found: int = Field(description="Chosen from the graph.")
    read: int = Field(
        description="Read: those whose quote was verified and that fit into the token budget."
    )
    tokens: int = Field(description="Their share of the token budget, estimated.")


class Trace(Value):
    """How the response was produced."""

    generation: str = Field(description="Generation that was searched.")
    profile: str = Field(description="Profile that was used.")
    plan: PlanTrace | None = Field(None, description="Analysis of the question.")
    route: Route = Field(description="Routing of the question to channels.")
    channels: dict[Channel, ChannelTrace] = Field(description="Result of each channel.")
    channels_used: list[Channel] = Field(description="Channels that contributed candidates.")
    channels_failed: dict[Channel, str] = Field(
        description="Channels that failed, with the reason."
    )
    graph_facts: GraphFactsTrace | None = Field(
        None, description="Relations and claims read with the passages, if the graph has any."
    )
    lexical: Literal["exact", "bounded"] | None = Field(
        None,
        description=(
            "`exact` if no unseen chunk could be among the best, `bounded` if the candidate "
            "budget cut the search short."
        ),
    )
    timings_ms: dict[str, float] = Field(description="Duration of each step in milliseconds.")
    reranker: str | None = Field(description="Reranker that was used.")
    max_rerank_score: float | None = Field(
        description="Best score of the reranker, above `rerank_background`."
    )
    rerank_background: float = Field(
        0.0,
        description=(
            "Score that any passage would reach. It is subtracted before scores are compared with "
            "`threshold`; `explanation.rerank_score` of a result contains it."
        ),
    )
    threshold: float | None = Field(description="Score below which the question is refused.")
    calibrated: bool = Field(
        False, description="Whether thresholds that were learned for this generation were used."
    )
    calibration: CalibrationBasis = Field(
        "uncalibrated", description="What the thresholds of refusal and trimming were learned from."
    )
    models: dict[str, str] = Field({}, description="Models that were called, by task.")
    model_calls: int = Field(
        0,
        description=(
            "Requests to model servers that were answered, or may have been: for chat, embeddings "
            "and reranking. `usage` also lists failed ones, and calls of local models."
        ),
    )
    rerank_requests: int = Field(
        0, description="Requests to a rerank server, retries not included."
    )
    tokens: int = Field(0, description="Input and output tokens of these requests.")
    cost: float | None = Field(
        None,
        description=(
            "Cost of these requests, 0 if there were none. Null if a model has no price; "
            "`unpriced` names it."
        ),
    )
    currency: str | None = Field(None, description="Currency of the cost (ISO 4217).")
    unpriced: list[str] = Field(
        [], description="Models that were called and are not in `PRICES__MODELS`."
    )
    usage: list[ModelUsage] = Field([], description="Calls by task and model.")
    stopped: list[StoppedCall] = Field(
        [],
        description=(
            "Calls that were not made, since a cap of the profile's `budget` does not allow them. "
            "Their steps did without the model."
        ),
    )
    cached: bool = Field(
        False,
        description=(
            "Whether the answer came from the cache. Route, channels, scores and notes are then "
            "those of the cached answer; durations and model calls are those of this request."
        ),
    )
    notes: list[str] = Field(
        default=[],
        description=(
            "Remarks for people about this response, such as entities that are still being indexed."
        ),
    )


class Confidence(Value):
    """How far the answer can be trusted, and why."""

    level: Literal["high", "medium", "low"] = Field(description="Level of confidence.")
    reasons: list[str] = Field(description="Reasons for the level.")
    probability: float | None = Field(
        None,
        description=(
            "Estimated probability that the quoted answer is right, by a model that was calibrated "
            "on public questions. Null when the passages have no token states to judge by."
        ),
    )


class SearchResponse(Value):
    """Ranked passages for a question."""

    run_id: UUID = Field(description="Id of this run, for `/v1/runs` and feedback.")
    generation: str = Field(description="Generation that was searched.")
    results: list[SearchResult] = Field(description="Passages, best first.")
    redacted: int = Field(
        0, description="Places in this response where a personal identifier is masked."
    )
    trace: Trace = Field(description="How the response was produced.")


RefusalCode = Literal[
    "NO_SUITABLE_CONTEXT", "NO_SUCH_COLLECTION", "INSUFFICIENT_CONTEXT", "JUDGE_BLOCKED"
]


class DebugInfo(Value):
    """Debug data, as recorded on topic `queries`."""

    candidates: list[dict[str, Any]] = Field(
        description="Candidates of every channel with their scores."
    )
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
    facts: list[FactCitation] = Field(
        [],
        description=(
            "Facts that the answer rests on, which people or applications stated: `[F1]` in its "
            "text. No document is cited for them."
        ),
    )
    contexts: list[SearchResult] = Field(
        [], description="Passages that the answer was based on. Empty without `return_context`."
    )
    path: list[AnswerHop] = Field(
        [],
        description=(
            "Steps from documents that the question names to others that the answer was based on."
        ),
    )
    relation_path: list[RelationHop] = Field(
        [],
        description=(
            "One or two relations that connect two entities of a question about their relation, "
            "in order, each with its citation. Empty if the graph knows none."
        ),
    )
    graph_facts: list[GraphFact] = Field(
        [],
        description=(
            "Relations and claims that were read with the passages. Empty without `return_context`."
        ),
    )
    judge: JudgeVerdict | None = Field(None, description="Checks of the answer, if a judge ran.")
    confidence: Confidence = Field(description="How far the answer can be trusted.")
    conflicts: list[Conflict] = Field(
        [], description="Numbers and dates on which the cited documents disagree."
    )
    assumptions: list[str] = Field([], description="Assumptions that the answer makes.")
    limitations: list[str] = Field([], description="Limitations of the answer.")
    redacted: int = Field(
        0, description="Places in this response where a personal identifier is masked."
    )
    trace: Trace = Field(description="How the response was produced.")
    debug: DebugInfo | None = Field(None, description="Debug data. Only with `debug`.")


class StepProgress(Value):
    """A step of a query started or ended. A step that runs twice is reported twice."""

    name: str = Field(
        description=(
            "One of `plan`, `link`, `channels`, `chunks`, `fuse`, `bridge`, `terms`, `rerank`, "
            "`read`, `evidence`, `answer` and `judge`."
        )
    )
    ms: float | None = Field(
        None, description="Duration in milliseconds, or null when the step starts."
    )


class AnswerDelta(Value):
    """The next words of an answer while the model writes it.

    Deltas are unverified; only the final answer counts.
    """

    draft: int = Field(
        description=(
            "Number of the draft, from 1. When it grows, the model has restarted: discard the "
            "deltas of earlier drafts."
        )
    )
    text: str = Field(description="Text to append to the draft.")


Progress = StepProgress | AnswerDelta
OnProgress = Callable[[Progress], None]
"""Receives the progress of a query. Must not block."""


def ignore_progress(progress: Progress) -> None:
    """Ignore progress, for callers that need only the answer."""
