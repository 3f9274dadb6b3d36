"""The read side: what answers questions over the live generation."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from anabranch.composition.engines import WatchFor, build_server_settings, open_embedder, resolve_models_folder
from anabranch.composition.overrides import NO_OVERRIDES, Overrides
from anabranch.config.index_config import require_model
from anabranch.config.settings import Settings
from engines.embed.states import unpack_states
from engines.language_detector import FastTextLanguageDetector
from engines.name_folding import FoldingNameNormalizer
from engines.sentence_splitter import RuleSentenceSplitter
from retrieval.answer_cache import OnCacheUse
from retrieval.pipeline import Retriever
from retrieval.profiles import ProfileCatalog, load_profiles
from schemas.errors import GenerationMismatch
from schemas.events import EventData
from schemas.generations import Generation
from schemas.ports.engines import ChatModel, Embedder, Reranker
from schemas.ports.search import SearchIndex
from services.engine_warmup import warm_in_background
from services.query.caches import Caches, open_caches
from services.query.outdated_embedder import OutdatedEmbedder
from services.storage import Storage

PROFILE_FOLDERS = (Path(__file__).parents[1] / "_profiles", Path(__file__).parents[2] / "profiles")
"""In the wheel, in the sources."""


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
    """With `note`, what is asked again and again is remembered. Where this program embeds otherwise than the one that made the generation, questions are answered without vectors, and the trace says why. Raises
    GenerationMismatch where the embedding model of the settings is not the one of the index."""
    async with AsyncExitStack() as stack:
        embedder = overrides.resolve_for(generation.config).embedder or await open_embedder(settings, generation.config.embed, stack, overrides.watch)
        _check_embedder(embedder, generation)
        is_compatible = embedder.fingerprint == generation.config.embed.fingerprint
        await stack.enter_async_context(warm_in_background([embedder] if is_compatible else [], resolve_models_folder(settings)))
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
        reranker = overrides.reranker or await _open_reranker(settings, generation, stack, overrides.watch)
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


def load_all_profiles(settings: Settings) -> ProfileCatalog:
    """Those that are shipped, then those of the data folder, which win."""
    shipped = next((folder for folder in PROFILE_FOLDERS if folder.is_dir()), PROFILE_FOLDERS[-1])
    own_folder = settings.profiles_dir or settings.data_dir / "profiles"
    return load_profiles(shipped, own_folder)


def _check_embedder(embedder: Embedder, generation: Generation) -> None:
    expected = generation.config.embed
    if (embedder.model, embedder.dimension) != (expected.model, expected.dimension):
        raise GenerationMismatch(
            f"generation {generation.name} was embedded by {expected.model} with {expected.dimension} numbers, "
            f"the settings name {embedder.model} with {embedder.dimension}"
        )


async def _open_reranker(settings: Settings, generation: Generation, stack: AsyncExitStack, watch: WatchFor) -> Reranker | None:
    """A server where one is set, else MaxSim where the index keeps token states, else none."""
    if settings.rerank.base_url:
        from engines.rerank.http import HttpReranker

        remote = HttpReranker(build_server_settings(settings.rerank, "rerank", require_model(settings.rerank, "rerank"), watch))
        stack.push_async_callback(remote.close)
        return remote
    if not generation.config.embed.state_dimension:
        return None
    from engines.rerank.maxsim import MaxSimReranker

    return MaxSimReranker()


async def _open_chat(settings: Settings, stack: AsyncExitStack, watch: WatchFor) -> ChatModel | None:
    if not settings.chat.base_url:
        return None
    from engines.chat.openai import OpenAIChat

    chat = OpenAIChat(build_server_settings(settings.chat, "chat", require_model(settings.chat, "chat"), watch))
    stack.push_async_callback(chat.close)
    return chat
