"""State of a query that is being processed: its dependencies, durations and calls of models.

Calls that a cap of its profile does not allow are stopped.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any, Literal
from uuid import UUID

from cachetools import LRUCache

from retrieval.evidence_model import EVIDENCE_MODEL
from retrieval.question.query_plan import QueryPlan
from retrieval.question.words import read_dictionary
from retrieval.ranking.reranking import TokenStateReader
from retrieval.redaction import Redactor
from schemas.budgets import NO_PRICES, BudgetProfile, CapName, ModelUsage, PriceTable, StoppedCall
from schemas.errors import BudgetExceeded
from schemas.exams import CalibrationBasis
from schemas.ids import fingerprint
from schemas.ports.engines import ChatModel, ChatUsage, Embedder, QueryEmbedding, Reranker
from schemas.ports.graph import GraphServer
from schemas.ports.metering import PlannedCall
from schemas.ports.search import CalibrationStore, SearchIndex
from schemas.principals import Principal, ReaderScope
from schemas.profiles import Profile
from schemas.questions import OnProgress, QueryRequest, SearchRequest, StepProgress, ignore_progress

CALL_CAPS: Mapping[str, CapName] = {
    "judge": "judge_calls",
    "embed": "search_calls",
    "rerank": "search_calls",
}
"""Cap on the number of calls by task; `calls` for every other one."""
COST_DIGITS = 12
"""Digits of costs: sums of binary fractions would otherwise exceed a cap that they equal."""

_UsageKey = tuple[str, str, bool]


@dataclass(slots=True)
class ModelBudget:
    """The CallMeter of one question.

    The bounds of calls in flight are reserved: concurrent calls cannot exceed a cap together.
    """

    profile: BudgetProfile = field(default_factory=BudgetProfile)
    prices: PriceTable = NO_PRICES
    stopped: list[StoppedCall] = field(default_factory=list)
    rerank_requests: int = 0
    """Requests to servers that rerank, as they are sent. A call, which `reserve` counts and limits,
    may need several."""
    _usage: dict[_UsageKey, ModelUsage] = field(default_factory=dict)
    # With the reservations of calls in flight.
    _calls: Counter[CapName] = field(default_factory=Counter)
    _tokens: int = 0
    _cost: float = 0.0

    def reserve(self, call: PlannedCall) -> None:
        cap = CALL_CAPS.get(call.task, "calls")
        limit, tokens, cost = getattr(self.profile, cap), _count_tokens(call), self._bound(call)
        if self._calls[cap] >= limit:
            self._stop(call, cap, limit, f"allows {limit} calls, all of which are used")
        if (limit := self.profile.tokens) is not None and self._tokens + tokens > limit:
            used = f"{self._tokens:,} are used, and this call may take {tokens:,} more"
            self._stop(call, "tokens", limit, f"allows {limit:,} tokens: {used}")
        if (limit := self.profile.cost) is not None:
            money = f"{limit:g} {self.prices.currency}"
            if cost is None:
                self._stop(call, "cost", limit, f"allows {money}, and {call.model} has no price")
            elif round(self._cost + cost, COST_DIGITS) > limit:
                used = f"{self._cost:.6g} is used, and this call may cost {cost:.6g} more"
                self._stop(call, "cost", limit, f"allows {money}: {used}")
        self._calls[cap] += 1
        self._tokens += tokens
        self._cost += cost or 0.0

    def charge(self, call: PlannedCall, usage: ChatUsage | None) -> None:
        self._drop_bounds(call)
        reported = usage or ChatUsage()
        # A count that is not reported is taken at its bound.
        used = ChatUsage(
            reported.input_tokens or call.max_input_tokens,
            reported.output_tokens or call.max_output_tokens,
        )
        cost = self._price(call.model, used)
        self._tokens += used.input_tokens + used.output_tokens
        self._cost += cost or 0.0
        entry = self._get_usage(call.task, call.model)
        self._set_usage(
            entry,
            calls=entry.calls + 1,
            input_tokens=entry.input_tokens + used.input_tokens,
            output_tokens=entry.output_tokens + used.output_tokens,
            estimated=entry.estimated or used != usage,
            cost=None if cost is None else round((entry.cost or 0.0) + cost, COST_DIGITS),
        )

    def release(self, call: PlannedCall) -> None:
        self._drop_bounds(call)
        self._calls[CALL_CAPS.get(call.task, "calls")] -= 1
        entry = self._get_usage(call.task, call.model)
        self._set_usage(entry, failed=entry.failed + 1)

    def count_local(self, task: str, model: str) -> None:
        entry = self._get_usage(task, model, is_local=True)
        self._set_usage(entry, calls=entry.calls + 1)

    def count_calls_left(self, task: str) -> int:
        cap = CALL_CAPS.get(task, "calls")
        return int(getattr(self.profile, cap)) - self._calls[cap]

    def list_usage(self) -> list[ModelUsage]:
        return list(self._usage.values())

    def list_unpriced(self) -> list[str]:
        """Return the models that were called and have no price."""
        return sorted({item.model for item in self._usage.values() if item.cost is None})

    def compute_cost(self) -> float | None:
        """Return the cost of all calls, or None if a model that was called has no price."""
        costs = [item.cost for item in self._usage.values()]
        known = [cost for cost in costs if cost is not None]
        return round(sum(known), COST_DIGITS) if len(known) == len(costs) else None

    def _drop_bounds(self, call: PlannedCall) -> None:
        self._tokens -= _count_tokens(call)
        self._cost -= self._bound(call) or 0.0

    def _stop(self, call: PlannedCall, cap: CapName, limit: float, reason: str) -> None:
        text = f"budget.{cap} of the profile {reason}"
        self.stopped.append(
            StoppedCall(cap=cap, limit=limit, task=call.task, model=call.model, reason=text)
        )
        raise BudgetExceeded(f"{text}.")

    def _bound(self, call: PlannedCall) -> float | None:
        return self._price(call.model, ChatUsage(call.max_input_tokens, call.max_output_tokens))

    def _price(self, model: str, usage: ChatUsage) -> float | None:
        price = self.prices.models.get(model)
        return price.compute_cost(usage.input_tokens, usage.output_tokens) if price else None

    def _get_usage(self, task: str, model: str, *, is_local: bool = False) -> ModelUsage:
        empty = ModelUsage(task=task, model=model, local=is_local, calls=0, cost=0.0)
        return self._usage.get((task, model, is_local), empty)

    def _set_usage(self, entry: ModelUsage, **changes: object) -> None:
        key = (entry.task, entry.model, entry.local)
        self._usage[key] = entry.model_copy(update=changes)


def _count_tokens(call: PlannedCall) -> int:
    return call.max_input_tokens + call.max_output_tokens


# Returns the current time in UTC.
Clock = Callable[[], datetime]


def elapsed_ms(started_at: datetime, ended_at: datetime) -> float:
    return round((ended_at - started_at).total_seconds() * 1000, 3)


class Stopwatch:
    """Duration of each step by name, in ms.

    A repeated step adds up. Reports each start and end to `on_progress`.
    """

    def __init__(self, clock: Clock, on_progress: OnProgress = ignore_progress) -> None:
        self._clock, self._on_progress = clock, on_progress
        self._started_at = clock()
        self.ms: dict[str, float] = {}

    @contextmanager
    def measure_step(self, name: str) -> Iterator[None]:
        started_at = self._clock()
        self._on_progress(StepProgress(name=name))
        try:
            yield
        finally:
            duration_ms = elapsed_ms(started_at, self._clock())
            self.ms[name] = round(self.ms.get(name, 0.0) + duration_ms, 3)
            self._on_progress(StepProgress(name=name, ms=duration_ms))

    def get_timings_ms(self) -> dict[str, float]:
        return {**self.ms, "total": elapsed_ms(self._started_at, self._clock())}


CacheName = Literal["answers", "question_embeddings"]
CacheUse = Literal["hit", "miss", "stale"]
OnCacheUse = Callable[[CacheName, CacheUse], None]


def ignore_cache_use(cache: CacheName, cache_use: CacheUse) -> None:
    """Count nothing."""


def format_readers_key(readers: ReaderScope) -> str:
    """Format a key that is equal for callers who may read the same documents of a tenant."""
    # None (every document) and an empty list are different scopes.
    return json.dumps(None if readers is None else sorted(set(readers)))


class QueryEmbeddingCache:
    """LRU cache of query embeddings, separate for each set of readers.

    A shared cache would reveal by its timing what other readers query. Keys are hashes: no query
    text is stored.
    """

    def __init__(
        self, embedder: Embedder, *, max_entries: int, on_use: OnCacheUse = ignore_cache_use
    ) -> None:
        self._embedder, self._on_use = embedder, on_use
        self._embeddings: LRUCache[bytes, QueryEmbedding] = LRUCache(max_entries)

    async def embed_query(self, caller: Principal, text: str) -> QueryEmbedding:
        """Return the embedding of `text`. Raises what the embedder raises."""
        key = hashlib.sha256(
            json.dumps([caller.tenant, format_readers_key(caller.readers), text]).encode()
        ).digest()
        embedded_query = self._embeddings.get(key)
        self._on_use("question_embeddings", "miss" if embedded_query is None else "hit")
        if embedded_query is None:
            # Identical queries at the same time may each embed: the result is the same.
            embedded_query = self._embeddings[key] = await self._embedder.embed_query(text)
        return embedded_query


@dataclass(frozen=True, slots=True)
class QueryContext:
    """A query that is being processed."""

    caller: Principal
    run_id: UUID
    request: SearchRequest
    profile: Profile
    plan: QueryPlan
    stopwatch: Stopwatch
    on_progress: OnProgress
    generation: str | None = None  # None: the live generation at the time of each snapshot
    use_cache: bool = False
    redactor: Redactor = field(default_factory=Redactor)
    searches_left: int = 0  # that the chat model may still ask for
    budget: ModelBudget = field(default_factory=ModelBudget)
    calibration: CalibrationBasis = "uncalibrated"
    standalone: str | None = None  # the question, where the conversation before it changes it
    # Documents that are left out, with their number of chunks: an exam hides them.
    excluded_documents: Mapping[UUID, int] = field(default_factory=dict)

    @property
    def question(self) -> str:
        return self.request.query if self.standalone is None else self.standalone

    @property
    def is_streamed(self) -> bool:
        return isinstance(self.request, QueryRequest) and self.request.stream


AcquireSlot = Callable[[str], AbstractAsyncContextManager[None]]
"""Waits until a query of a tenant may read the index. Raises TransientError."""


def acquire_no_slot(tenant: str) -> AbstractAsyncContextManager[None]:
    """Let every query read at once."""
    return nullcontext()


@dataclass(frozen=True, slots=True)
class RetrievalResources:
    """Index, engines and clock. Without a chat model answers are quoted; without a reranker the
    fused order stands; without planner, router or judge, rules do their work.
    """

    search: SearchIndex
    embedder: Embedder
    reranker: Reranker | None
    chat: ChatModel | None
    states: TokenStateReader
    clock: Clock
    embedding_cache: QueryEmbeddingCache | None = None
    planner: ChatModel | None = None
    router: ChatModel | None = None
    judge: ChatModel | None = None
    calibrations: CalibrationStore | None = None
    graph: GraphServer | None = None
    acquire_slot: AcquireSlot = acquire_no_slot

    def fingerprint_scores(self, profile: Profile) -> str:
        """Return a fingerprint of all models that scores and probabilities come from."""
        reranker = self.get_reranker(profile)
        return fingerprint(
            self.embedder.fingerprint,
            reranker.fingerprint if reranker else None,
            asdict(EVIDENCE_MODEL),
            # Its features are matches of words.
            read_dictionary(),
        )

    async def calibrate(self, query: QueryContext, generation: str) -> QueryContext:
        """Put the learned thresholds of the generation into the profile of the query.

        Into the profile, since a run records it, so that a rerun decides by the same numbers.
        """
        profile = query.profile
        if self.calibrations is None or not profile.answer.calibrated:
            return query
        learned = await self.calibrations.fetch(
            query.caller.tenant, generation, self.fingerprint_scores(profile)
        )
        if learned is None or learned.basis == "uncalibrated":
            return query
        thresholds = {"trim": learned.trim, "min_confidence": learned.min_confidence}
        if profile.answer.min_confidence is not None:
            del thresholds["min_confidence"]
        known = {name: value for name, value in thresholds.items() if value is not None}
        answer = profile.answer.model_copy(update=known)
        return replace(
            query, profile=profile.model_copy(update={"answer": answer}), calibration=learned.basis
        )

    def get_reranker(self, profile: Profile) -> Reranker | None:
        return self.reranker if profile.rerank.reranker == "default" else None

    def get_embed(
        self, query: QueryContext
    ) -> Callable[[str], Coroutine[Any, Any, QueryEmbedding]]:
        if self.embedding_cache is not None and query.use_cache:
            return partial(self.embedding_cache.embed_query, query.caller)
        return self.embedder.embed_query
