"""Compose the retriever of a generation."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from anabranch.config.engines import (
    open_chat,
    open_embedder,
    open_graph_server,
    open_reranker,
    resolve_models_folder,
)
from anabranch.config.overrides import NO_OVERRIDES, Overrides
from anabranch.config.settings import Settings
from engines.embed.states import unpack_states
from engines.language import FastTextLanguageDetector
from retrieval.profiles import ProfileCatalog
from retrieval.ranking.query_context import (
    AcquireSlot,
    OnCacheUse,
    RetrievalResources,
    acquire_no_slot,
)
from retrieval.ranking.reranking import TokenStateReader
from retrieval.retriever import Retriever
from retrieval.runs.run_record import PublishRunEvent, discard_event
from schemas.generations import Generation
from schemas.ports.search import SearchIndex
from services.engines import check_embedder, warm_in_background
from services.query.retriever_pool import Caches, OutdatedEmbedder, open_caches
from services.storage import Storage
from sql.index.generations import PgCalibrations


@dataclass(frozen=True, slots=True)
class RetrieverHooks:
    """Callbacks of a retriever: events to publish, uses of its caches, and slots of its models."""

    publish: PublishRunEvent = discard_event
    on_cache_use: OnCacheUse | None = None
    acquire_slot: AcquireSlot = acquire_no_slot


NO_HOOKS = RetrieverHooks()


@asynccontextmanager
async def prepare_retriever(
    settings: Settings,
    storage: Storage,
    search: SearchIndex,
    generation: Generation,
    profiles: ProfileCatalog,
    hooks: RetrieverHooks = NO_HOOKS,
    *,
    overrides: Overrides = NO_OVERRIDES,
) -> AsyncIterator[Retriever]:
    """Open the retriever of a generation, with caches if `hooks` count their use.

    If another program version embedded the generation, queries run without vectors and the trace
    says why. Raises GenerationMismatch if the settings name another embedding model than the index.
    """
    # One function: the retriever is composed by hand, in the order in which its parts open.
    async with AsyncExitStack() as stack:
        embedder = overrides.resolve_for(generation.config).embedder or await open_embedder(
            settings, generation.config.embed, stack, overrides.watch
        )
        check_embedder(embedder, generation)
        is_compatible = embedder.fingerprint == generation.config.embed.fingerprint
        await stack.enter_async_context(
            warm_in_background([embedder] if is_compatible else [], resolve_models_folder(settings))
        )
        caches = Caches()
        if hooks.on_cache_use and is_compatible:
            options = settings.cache
            caches = await stack.enter_async_context(
                open_caches(
                    storage.pool,
                    embedder,
                    overrides.clock,
                    hooks.on_cache_use,
                    embedding_entries=options.embeddings,
                    answer_entries=options.answers,
                    answer_ttl_s=options.seconds,
                )
            )
        reranker = overrides.reranker or await open_reranker(
            settings, generation, stack, overrides.watch
        )
        resources = RetrievalResources(
            search,
            embedder if is_compatible else OutdatedEmbedder(generation),
            reranker if is_compatible or reranker is None or reranker.role != "added" else None,
            overrides.chat or await open_chat(settings, stack, overrides.watch),
            TokenStateReader(storage.blobs, unpack_states, settings.cache.states),
            overrides.clock,
            caches.embeddings,
            planner=overrides.chat or await open_chat(settings, stack, overrides.watch, "plan"),
            router=overrides.chat or await open_chat(settings, stack, overrides.watch, "route"),
            judge=overrides.chat or await open_chat(settings, stack, overrides.watch, "judge"),
            calibrations=PgCalibrations(storage.pool),
            graph=await stack.enter_async_context(open_graph_server(settings.graph)),
            acquire_slot=hooks.acquire_slot,
        )
        yield Retriever(
            resources,
            overrides.languages or FastTextLanguageDetector(),
            profiles,
            hooks.publish,
            answer_cache=caches.answers,
            prices=settings.prices,
        )
