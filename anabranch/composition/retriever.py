"""Compose the retriever of a generation."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

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
from engines.language_detector import FastTextLanguageDetector
from engines.name_folding import FoldingNameNormalizer
from engines.sentence_splitter import RuleSentenceSplitter
from retrieval.profiles import ProfileCatalog
from retrieval.ranking.query_context import AcquireSlot, OnCacheUse, acquire_no_slot
from retrieval.retriever import Retriever
from schemas.events import EventData
from schemas.generations import Generation
from schemas.ports.search import SearchIndex
from services.engines import check_embedder, warm_in_background
from services.query.retriever_pool import Caches, OutdatedEmbedder, open_caches
from services.storage import Storage
from sql.catalog.exams import PgCalibrations


@asynccontextmanager
async def prepare_retriever(
    settings: Settings,
    storage: Storage,
    search: SearchIndex,
    generation: Generation,
    profiles: ProfileCatalog,
    *,
    publish: Callable[[EventData], None] | None = None,
    on_cache_use: OnCacheUse | None = None,
    acquire_slot: AcquireSlot = acquire_no_slot,
    overrides: Overrides = NO_OVERRIDES,
) -> AsyncIterator[Retriever]:
    """Open the retriever of a generation, with caches if `on_cache_use` is given.

    If another program version embedded the generation, queries run without vectors and the trace
    says why. Raises GenerationMismatch if the settings name another embedding model than the index.
    """
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
        if on_cache_use and is_compatible:
            options = settings.cache
            caches = await stack.enter_async_context(
                open_caches(
                    storage.pool,
                    embedder,
                    overrides.clock,
                    on_cache_use,
                    embedding_entries=options.embeddings,
                    answer_entries=options.answers,
                    answer_ttl_s=options.seconds,
                )
            )
        reranker = overrides.reranker or await open_reranker(
            settings, generation, stack, overrides.watch
        )
        yield Retriever(
            search,
            embedder if is_compatible else OutdatedEmbedder(generation),
            reranker if is_compatible or reranker is None or reranker.role != "added" else None,
            overrides.chat or await open_chat(settings, stack, overrides.watch),
            storage.blobs,
            overrides.languages or FastTextLanguageDetector(),
            RuleSentenceSplitter(),
            FoldingNameNormalizer(),
            unpack_states,
            profiles,
            overrides.clock,
            planner=overrides.chat or await open_chat(settings, stack, overrides.watch, "plan"),
            router=overrides.chat or await open_chat(settings, stack, overrides.watch, "route"),
            judge=overrides.chat or await open_chat(settings, stack, overrides.watch, "judge"),
            calibrations=PgCalibrations(storage.pool),
            graph=await stack.enter_async_context(open_graph_server(settings.graph)),
            acquire_slot=acquire_slot,
            prices=settings.prices,
            state_cache_bytes=settings.cache.states,
            **({"publish": publish} if publish else {}),
            **caches,
        )
