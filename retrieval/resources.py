"""Dependencies of the retrieval pipeline."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any

from retrieval.answer_cache import QueryEmbeddingCache
from retrieval.query_context import QueryContext
from retrieval.timing import Clock
from retrieval.token_states import TokenStateReader
from schemas.ports.engines import ChatModel, Embedder, QueryEmbedding, Reranker, SentenceSplitter
from schemas.ports.search import SearchIndex
from schemas.profiles import Profile


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
