"""Questions, and what comes back: the shapes of `/v1/search` and `/v1/query`."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from schemas.languages import Language
from schemas.values import Span, Value

Channel = Literal["lexical", "semantic", "graph"]
Mode = Literal["auto", "vector", "graph", "hybrid"]
CHANNELS: tuple[Channel, ...] = ("lexical", "semantic", "graph")


MAX_FILTER_ENTRIES = 1_000
MAX_FILTER_METADATA_BYTES = 64 * 1024
FilterText = Annotated[str, Field(max_length=1024)]


def _check_metadata_size(metadata: dict[str, Any]) -> dict[str, Any]:
    if len(metadata) > MAX_FILTER_ENTRIES:
        raise ValueError(f"{len(metadata)} keys; {MAX_FILTER_ENTRIES} are allowed")
    if (n_bytes := len(json.dumps(metadata, default=str).encode())) > MAX_FILTER_METADATA_BYTES:
        raise ValueError(f"{n_bytes} bytes of JSON; {MAX_FILTER_METADATA_BYTES} are allowed")
    return metadata


class Filters(Value):
    """All that are given must hold. Dates are `document_date`; metadata is compared by equality of each given key."""

    collections: list[FilterText] = Field([], max_length=MAX_FILTER_ENTRIES)
    tags: list[FilterText] = Field([], max_length=MAX_FILTER_ENTRIES, description="all of them")
    document_ids: list[UUID] = Field([], max_length=MAX_FILTER_ENTRIES)
    external_ids: list[FilterText] = Field([], max_length=MAX_FILTER_ENTRIES)
    languages: list[FilterText] = Field([], max_length=MAX_FILTER_ENTRIES)
    date_from: date | None = None
    date_to: date | None = None
    metadata: Annotated[dict[str, Any], AfterValidator(_check_metadata_size)] = Field({}, description="at most 64 KB of JSON")


def _require_word(query: str) -> str:
    if not any(character.isalnum() for character in query):
        raise ValueError("the question has no word in it")
    return query


QueryText = Annotated[str, Field(min_length=1, max_length=8000), AfterValidator(_require_word)]


class SearchRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    query: QueryText
    k: int = Field(10, ge=1, le=100)
    mode: Mode = "auto"
    profile: str = "default"
    filters: Filters = Filters()
    channels: list[Channel] | None = Field(None, min_length=1, description="only these")
    language: Language | None = Field(None, description="of the question, BCP 47; detected when not given")
    generation: str | None = None
    explain: bool = False


class QueryRequest(SearchRequest):
    stream: bool = Field(False, description="answer with server-sent events")
    return_context: bool = True
    debug: bool = Field(False, description="add every candidate and every number that entered a sum")


class ChannelRank(Value):
    rank: int
    score: float


class SearchResult(Value):
    """A parent chunk, ranked."""

    rank: int
    score: float
    document_id: UUID
    external_id: str | None
    revision: int
    title: str | None
    source_uri: str | None
    link: str
    chunk_id: UUID = Field(description="the best child")
    parent_id: UUID
    section: str
    pages: list[int]
    spans: list[Span]
    snippet: str
    channels: dict[Channel, ChannelRank]
    duplicates: list[UUID] = Field(default=[], description="documents whose near-equal passage was folded under this one")
    explanation: dict[str, Any] | None = Field(None, description="on request: every number that entered the score")


class Citation(Value):
    """`quote` is verbatim from the stored text, verified before it is shown; of a table it is the row, with the header cells in `header`."""

    n: int
    document_id: UUID
    external_id: str | None
    revision: int
    chunk_id: UUID
    title: str | None
    source_uri: str | None
    link: str
    section: str
    pages: list[int]
    spans: list[Span]
    quote: str
    header: list[str] | None = None
    redacted: list[tuple[int, int]] = []


class Route(Value):
    mode: Literal["vector", "graph", "hybrid"]
    decided_by: Literal["request", "rules", "model"]
    reason: str
    escalated_from: str | None = None


class ChannelTrace(Value):
    k: int
    returned: int
    best: float | None
    ms: float


class Trace(Value):
    generation: str
    profile: str
    route: Route
    channels: dict[Channel, ChannelTrace]
    channels_used: list[Channel]
    channels_failed: dict[Channel, str]
    lexical: Literal["exact", "bounded"] | None = None
    timings_ms: dict[str, float]
    reranker: str | None
    max_rerank_score: float | None
    threshold: float | None
    calibrated: bool = False
    models: dict[str, str] = {}
    model_calls: int = 0
    tokens: int = 0
    cost: float | None = None
    cached: bool = Field(
        False,
        description="the same was answered before, and nothing that it rests on has changed since; route, channels, scores and notes are as they were then, "
        "times and what models were asked are this answer's own",
    )
    notes: list[str] = Field(default=[], description="what a person should know about this answer, such as entities still settling")


class JudgeCheck(Value):
    name: str
    kind: Literal["deterministic", "model"]
    result: Literal["pass", "fail", "not_checked"]
    score: float | None = None
    threshold: float | None = None
    severity: Literal["hard", "soft"] = "soft"
    evidence: str | None = None


class JudgeVerdict(Value):
    decision: Literal["PASS", "FAIL_RETRYABLE", "FAIL_BLOCKED"]
    checks: list[JudgeCheck]


class Confidence(Value):
    level: Literal["high", "medium", "low"]
    reasons: list[str]


class SearchResponse(Value):
    run_id: UUID
    generation: str
    results: list[SearchResult]
    trace: Trace


RefusalCode = Literal["NO_SUITABLE_CONTEXT", "NO_SUCH_COLLECTION", "INSUFFICIENT_CONTEXT", "JUDGE_BLOCKED"]


class DebugInfo(Value):
    """What the question's fact on topic `queries` records."""

    candidates: list[dict[str, Any]]
    numbers: dict[str, Any]


class QueryResponse(Value):
    run_id: UUID
    generation: str
    answer: str | None
    refused: bool
    code: RefusalCode | None = None
    message: str | None = None
    language: str | None = None
    citations: list[Citation]
    contexts: list[SearchResult] = []
    judge: JudgeVerdict | None = None
    confidence: Confidence
    assumptions: list[str] = []
    limitations: list[str] = []
    trace: Trace
    debug: DebugInfo | None = Field(None, description="on request")


class StepProgress(Value):
    """A step of a question began, or ended after `ms` milliseconds. One that runs again is told again."""

    name: str = Field(description="plan, channels, chunks, fuse, rerank, read, answer, judge")
    ms: float | None = Field(None, description="null when it begins")


class AnswerDelta(Value):
    """More words of an answer that a model is writing: a draft, before any sentence of it is proven. The answer at the end is what holds."""

    draft: int = Field(description="from 1; grows when the model begins anew, and what was told before is void")
    text: str


Progress = StepProgress | AnswerDelta
OnProgress = Callable[[Progress], None]
"""Takes what happens while a question is under way, and returns at once."""


def ignore_progress(progress: Progress) -> None:
    """For those who wait for the answer alone."""
