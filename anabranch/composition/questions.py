"""The read side: what answers questions over the live generation."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from anabranch.background.warming import warming
from anabranch.composition.engines import Watching, embedder_of, models_folder, server
from anabranch.composition.outdated_embedder import OutdatedEmbedder
from anabranch.composition.overrides import NONE, Overrides
from anabranch.composition.remembering import Caches, remembering
from anabranch.composition.storage import Storage
from anabranch.indexing import model_of
from anabranch.settings import Settings
from engines.embed.states import unpack_states
from engines.languages import LiteLanguages
from engines.names import FoldedNames
from engines.sentences import RuleSentences
from retrieval.pipeline import Retriever
from retrieval.profiles import Profiles, load_profiles
from retrieval.remembered import Note
from schemas.errors import GenerationMismatch
from schemas.events import Event
from schemas.generations import Generation
from schemas.ports.engines import Chat, Embedder, Reranker
from schemas.ports.search import Search

SHIPPED_PROFILES = (Path(__file__).parents[1] / "_profiles", Path(__file__).parents[2] / "profiles")
"""In the wheel, in the sources."""


@asynccontextmanager
async def prepare_questions(
    settings: Settings,
    storage: Storage,
    search: Search,
    generation: Generation,
    *,
    publish: Callable[[Event], None] | None = None,
    note: Note | None = None,
    overrides: Overrides = NONE,
) -> AsyncIterator[Retriever]:
    """With `note`, what is asked again and again is remembered. Where this program embeds otherwise than the one that made the generation, questions are answered without vectors, and the trace says why. Raises
    GenerationMismatch where the embedding model of the settings is not the one of the index."""
    async with AsyncExitStack() as stack:
        embedder = overrides.of(generation.config).embedder or await embedder_of(settings, generation.config.embed, stack, overrides.watch)
        _check_embedder(embedder, generation)
        alike = embedder.fingerprint == generation.config.embed.fingerprint
        await stack.enter_async_context(warming([embedder] if alike else [], models_folder(settings)))
        caches = Caches()
        if note and alike:
            caches = await stack.enter_async_context(remembering(settings.cache, storage.pool, embedder, overrides.clock, note))
        reranker = overrides.reranker or await _reranker(settings, generation, stack, overrides.watch)
        yield Retriever(
            search,
            embedder if alike else OutdatedEmbedder(generation),
            reranker if alike or reranker is None or reranker.role != "added" else None,
            overrides.chat or await _chat(settings, stack, overrides.watch),
            storage.blobs,
            overrides.languages or LiteLanguages(),
            RuleSentences(),
            FoldedNames(),
            unpack_states,
            profiles_of(settings),
            overrides.clock,
            **({"publish": publish} if publish else {}),
            **caches,
        )


def profiles_of(settings: Settings) -> Profiles:
    """Those that are shipped, then those of the data folder, which win."""
    shipped = next((folder for folder in SHIPPED_PROFILES if folder.is_dir()), SHIPPED_PROFILES[-1])
    own = settings.profiles_dir or settings.data_dir / "profiles"
    return load_profiles(shipped, own)


def _check_embedder(embedder: Embedder, generation: Generation) -> None:
    made_by = generation.config.embed
    if (embedder.model, embedder.dimension) != (made_by.model, made_by.dimension):
        raise GenerationMismatch(
            f"generation {generation.name} was embedded by {made_by.model} with {made_by.dimension} numbers, "
            f"the settings name {embedder.model} with {embedder.dimension}"
        )


async def _reranker(settings: Settings, generation: Generation, stack: AsyncExitStack, watch: Watching) -> Reranker | None:
    """A server where one is set, else MaxSim where the index keeps token states, else none."""
    if settings.rerank.base_url:
        from engines.rerank.http import HttpReranker

        remote = HttpReranker(server(settings.rerank, "rerank", model_of(settings.rerank, "rerank"), watch))
        stack.push_async_callback(remote.close)
        return remote
    if not generation.config.embed.state_dimension:
        return None
    from engines.rerank.maxsim import MaxSimReranker

    return MaxSimReranker()


async def _chat(settings: Settings, stack: AsyncExitStack, watch: Watching) -> Chat | None:
    if not settings.chat.base_url:
        return None
    from engines.chat.openai import OpenAIChat

    chat = OpenAIChat(server(settings.chat, "chat", model_of(settings.chat, "chat"), watch))
    stack.push_async_callback(chat.close)
    return chat
