"""State of a query that is being processed, and the dependencies of the pipeline."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from retrieval.answer_cache import QueryEmbeddingCache
from retrieval.query_plan import QueryPlan
from retrieval.reranking import TokenStateReader
from retrieval.timing import Clock, Stopwatch
from schemas.ports.engines import ChatModel, Embedder, QueryEmbedding, Reranker, SentenceSplitter
from schemas.ports.search import SearchIndex
from schemas.principals import Principal
from schemas.profiles import Profile
from schemas.questions import OnProgress, QueryRequest, SearchRequest


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

    @property
    def is_streamed(self) -> bool:
        return isinstance(self.request, QueryRequest) and self.request.stream


@dataclass(frozen=True, slots=True)
class RetrievalResources:
    """Index, engines and clock. Without a chat model answers are quoted; without a reranker the
    fused order stands.
    """

    search: SearchIndex
    embedder: Embedder
    reranker: Reranker | None
    chat: ChatModel | None
    sentences: SentenceSplitter
    states: TokenStateReader
    clock: Clock
    embedding_cache: QueryEmbeddingCache | None = None

    def get_reranker(self, profile: Profile) -> Reranker | None:
        return self.reranker if profile.rerank.reranker == "default" else None

    def get_embed(
        self, query: QueryContext
    ) -> Callable[[str], Coroutine[Any, Any, QueryEmbedding]]:
        if self.embedding_cache is not None and query.use_cache:
            return partial(self.embedding_cache.embed_query, query.caller)
        return self.embedder.embed_query
