"""State of a query that is being processed, and the dependencies of the pipeline."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Literal
from uuid import UUID

from cachetools import LRUCache

from retrieval.evidence_model import EVIDENCE_MODEL
from retrieval.model_budget import ModelBudget
from retrieval.question.query_plan import QueryPlan
from retrieval.question.translation import read_dictionary
from retrieval.ranking.reranking import TokenStateReader
from retrieval.redaction import Redactor
from retrieval.timing import Clock, Stopwatch
from schemas.exams import CalibrationBasis
from schemas.ids import fingerprint
from schemas.ports.calibrations import CalibrationStore
from schemas.ports.engines import ChatModel, Embedder, QueryEmbedding, Reranker, SentenceSplitter
from schemas.ports.graph import GraphServer
from schemas.ports.search import SearchIndex
from schemas.principals import Principal, ReaderScope
from schemas.profiles import Profile
from schemas.questions import OnProgress, QueryRequest, SearchRequest

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


@dataclass(slots=True)
class EngineUsage:
    """Requests of one query to servers other than chat models. Counted as they are sent."""

    rerank_requests: int = 0


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
    usage: EngineUsage = field(default_factory=EngineUsage)
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
    sentences: SentenceSplitter
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
            query,
            profile=profile.model_copy(update={"answer": answer}),
            calibration=learned.basis,
        )

    def get_reranker(self, profile: Profile) -> Reranker | None:
        return self.reranker if profile.rerank.reranker == "default" else None

    def get_embed(
        self, query: QueryContext
    ) -> Callable[[str], Coroutine[Any, Any, QueryEmbedding]]:
        if self.embedding_cache is not None and query.use_cache:
            return partial(self.embedding_cache.embed_query, query.caller)
        return self.embedder.embed_query
