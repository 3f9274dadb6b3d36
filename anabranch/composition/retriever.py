"""Compose the retriever of a generation."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from anabranch.composition.engines import open_embedder
from anabranch.config.index_config import require_model
from anabranch.config.model_servers import WatchFor, build_server_settings, resolve_models_folder
from anabranch.config.overrides import NO_OVERRIDES, Overrides
from anabranch.config.profiles import load_all_profiles
from anabranch.config.settings import Settings
from engines.embed.states import unpack_states
from engines.language_detector import FastTextLanguageDetector
from engines.name_folding import FoldingNameNormalizer
from engines.sentence_splitter import RuleSentenceSplitter
from retrieval.query_context import OnCacheUse
from retrieval.retriever import Retriever
from schemas.events import EventData
from schemas.generations import Generation
from schemas.ports.engines import ChatModel, Reranker
from schemas.ports.search import SearchIndex
from services.engines import check_embedder, warm_in_background
from services.query.caches import Caches, open_caches
from services.query.retriever_pool import OutdatedEmbedder
from services.storage import Storage


@asynccontextmanager
async def prepare_retriever(
    settings: Settings,
    storage: Storage,
    search: SearchIndex,
    generation: Generation,
    *,
    publish: Callable[[EventData], None] | None = None,
    on_cache_use: OnCacheUse | None = None,
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
        reranker = overrides.reranker or await _open_reranker(
            settings, generation, stack, overrides.watch
        )
        yield Retriever(
            search,
            embedder if is_compatible else OutdatedEmbedder(generation),
            reranker if is_compatible or reranker is None or reranker.role != "added" else None,
            overrides.chat or await _open_chat(settings, stack, overrides.watch),
            storage.blobs,
            overrides.languages or FastTextLanguageDetector(),
            RuleSentenceSplitter(),
            FoldingNameNormalizer(),
            unpack_states,
            load_all_profiles(settings),
            overrides.clock,
            **({"publish": publish} if publish else {}),
            **caches,
        )


async def _open_reranker(
    settings: Settings, generation: Generation, stack: AsyncExitStack, watch: WatchFor
) -> Reranker | None:
    """Open the configured server, else MaxSim if the index keeps token states, else none."""
    if settings.rerank.base_url:
        from engines.rerank.http import HttpReranker

        remote = HttpReranker(
            build_server_settings(
                settings.rerank, "rerank", require_model(settings.rerank, "rerank"), watch
            )
        )
        stack.push_async_callback(remote.close)
        return remote
    if not generation.config.embed.state_dimension:
        return None
    from engines.rerank.maxsim import MaxSimReranker

    return MaxSimReranker()


async def _open_chat(
    settings: Settings, stack: AsyncExitStack, watch: WatchFor
) -> ChatModel | None:
    if not settings.chat.base_url:
        return None
    from engines.chat.openai import OpenAIChat

    chat = OpenAIChat(
        build_server_settings(settings.chat, "chat", require_model(settings.chat, "chat"), watch)
    )
    stack.push_async_callback(chat.close)
    return chat
