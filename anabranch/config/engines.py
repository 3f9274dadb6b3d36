"""Open engines, model servers and stores.

The generation's configuration selects engines; the settings locate servers and files.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import unquote, urlsplit

from anabranch.config.index_config import require_model
from anabranch.config.loader import resolve_generation_settings
from anabranch.config.overrides import NO_OVERRIDES, Overrides, watch_nothing
from anabranch.config.settings import (
    ChatTask,
    GraphSettings,
    IngestSettings,
    ModelSettings,
    Settings,
)
from engines.blobs import open_blobs
from engines.disk import DiskReserve
from engines.parsed_blocks import OcrEngine
from engines.server_settings import ServerInstrumentation, ServerRetryPolicy, ServerSettings
from schemas.errors import ConfigurationError
from schemas.generations import EmbedConfig, ExtractConfig, Generation, IndexConfig, OcrConfig
from schemas.ports.engines import BlobStore, ChatModel, Embedder, Extractor, Parser, Reranker
from schemas.ports.graph import GraphServer
from schemas.ports.stage_ports import IngressLimits
from services.engines import Engines, OpenEngines, SharedEngines

if TYPE_CHECKING:
    from engines.http_fetcher import HttpFetcher

WatchFor = Callable[[str], ServerInstrumentation]


def build_server_settings(
    model: ModelSettings, section: str, name: str, watch: WatchFor = watch_nothing
) -> ServerSettings:
    """Build the settings of the server that serves model `name`.

    Raises ConfigurationError if `base_url` is not set.
    """
    if not model.base_url:
        raise ConfigurationError(
            f"The index was built with a model server for {section}, but {section}.base_url is "
            "not set.",
            remedy=f"Set ANABRANCH_{section.upper()}__BASE_URL.",
        )
    key = model.api_key.get_secret_value() if model.api_key else ""
    return ServerSettings(
        model.base_url,
        name,
        key,
        model.kind or "openai",
        model.api_version,
        instrumentation=watch(section),
        **({"timeout_s": model.timeout_s} if model.timeout_s else {}),
    )


def build_retry_policy(model: ModelSettings) -> ServerRetryPolicy:
    """Build the policy of a server; unset settings keep its defaults."""
    default = ServerRetryPolicy()
    return replace(
        default,
        attempts=model.attempts or default.attempts,
        total_timeout_s=model.total_timeout_s or default.total_timeout_s,
        failure_threshold=model.breaker_failures or default.failure_threshold,
        circuit_open_s=model.breaker_open_s or default.circuit_open_s,
    )


def resolve_models_folder(settings: Settings) -> Path:
    """Return the folder for files that engines compute once and reuse."""
    return settings.data_dir.resolve() / "models"


def resolve_thread_count(settings: Settings) -> int:
    return settings.worker.threads or os.cpu_count() or 1


def build_unknown_engine_error(section: str, engine: str) -> ConfigurationError:
    return ConfigurationError(
        f"This version does not support {section}.engine {engine!r}.", remedy="Upgrade Anabranch."
    )


@asynccontextmanager
async def prepare_engines(
    settings: Settings, config: IndexConfig, overrides: Overrides = NO_OVERRIDES
) -> AsyncIterator[Engines]:
    # Imported here: engines load native libraries that most commands do not need.
    from engines.chunk import create_chunker
    from engines.language import FastTextLanguageDetector

    watch, overrides = overrides.watch, overrides.resolve_for(config)
    async with AsyncExitStack() as stack:
        yield Engines(
            parser=overrides.parser or await _open_parser(settings, config.ocr, stack, watch),
            chunker=overrides.chunker or create_chunker(config.chunk),
            extractor=overrides.extractor
            or await _open_extractor(settings, config.extract, stack, watch),
            embedder=overrides.embedder
            or await open_embedder(settings, config.embed, stack, watch),
            languages=overrides.languages or FastTextLanguageDetector(),
        )


def build_engine_opener(settings: Settings, overrides: Overrides) -> OpenEngines:
    def open_engines(
        generation: Generation, shared: SharedEngines
    ) -> AbstractAsyncContextManager[Engines]:
        reused = {
            part.name: engine
            for part in fields(shared)
            if (engine := getattr(shared, part.name)) is not None
        }
        # Resolved already: resolving again would discard the reused engines.
        merged = replace(overrides.resolve_for(generation.config), for_config=None, **reused)
        return prepare_engines(
            resolve_generation_settings(settings, generation.name), generation.config, merged
        )

    return open_engines


async def open_embedder(
    settings: Settings, config: EmbedConfig, stack: AsyncExitStack, watch: WatchFor
) -> Embedder:
    match config.engine:
        case "e5":
            from engines.embed.e5 import E5Embedder

            local = E5Embedder(
                resolve_models_folder(settings),
                state_dimension=config.state_dimension,
                threads=resolve_thread_count(settings),
            )
            stack.callback(local.close)
            return local
        case "named":
            from engines.named_models import NamedEmbedder

            # In a thread: the first time it may be downloaded.
            named = await asyncio.to_thread(
                NamedEmbedder,
                resolve_models_folder(settings),
                config.model,
                dimension=config.dimension,
                threads=resolve_thread_count(settings),
            )
            stack.callback(named.close)
            return named
        case "openai" | "cohere" as api:
            from engines.embed.openai import OpenAIEmbedder

            remote = OpenAIEmbedder(
                build_server_settings(settings.embed, "embed", config.model, watch),
                dimension=config.dimension,
                api=api,
                batch_size=settings.embed.batch,
                max_parallel=settings.embed.parallel,
                retry_policy=build_retry_policy(settings.embed),
            )
            stack.push_async_callback(remote.close)
            return remote
    raise build_unknown_engine_error("embed", config.engine)


async def _open_parser(
    settings: Settings, config: OcrConfig, stack: AsyncExitStack, watch: WatchFor
) -> Parser:
    from engines.parse import LocalParser

    parser = LocalParser(
        await _open_ocr(settings, config, stack, watch),
        max_pages=settings.ingest.max_pages,
        max_characters=settings.ingest.max_characters,
        characters_per_byte=settings.ingest.characters_per_byte,
        hidden_text=settings.parse.hidden_text,
        deadline_s=settings.worker.parse_deadline_s,
        memory_bytes=settings.worker.parse_memory,
        workers=min(2, os.cpu_count() or 1),
    )
    stack.push_async_callback(parser.aclose)
    return parser


async def _open_ocr(
    settings: Settings, config: OcrConfig, stack: AsyncExitStack, watch: WatchFor
) -> OcrEngine:
    match config.engine:
        case "rapidocr":
            from engines.ocr.rapidocr import RapidOcr

            local = RapidOcr(workers=min(2, os.cpu_count() or 1))
            stack.push_async_callback(local.aclose)
            return local
        case "openai":
            from engines.ocr.openai import OpenAIOcr

            remote = OpenAIOcr(
                build_server_settings(settings.ocr, "ocr", config.model, watch),
                retry_policy=build_retry_policy(settings.ocr),
            )
            stack.push_async_callback(remote.aclose)
            return remote
    raise build_unknown_engine_error("ocr", config.engine)


async def _open_extractor(
    settings: Settings,
    config: ExtractConfig,
    stack: AsyncExitStack,
    watch: WatchFor = watch_nothing,
) -> Extractor:
    match config.engine:
        case "rules":
            from engines.extract.rules import RuleExtractor

            return RuleExtractor()
        case "openai":
            from engines.chat.openai import OpenAIChat
            from engines.extract.openai import OpenAIExtractor

            server = settings.resolve_chat_server("extract")
            chat = OpenAIChat(
                build_server_settings(server, "extract", config.model, watch),
                retry_policy=build_retry_policy(server),
            )
            stack.push_async_callback(chat.close)
            return OpenAIExtractor(chat)
    raise build_unknown_engine_error("extract", config.engine)


async def open_reranker(
    settings: Settings, generation: Generation, stack: AsyncExitStack, watch: WatchFor
) -> Reranker | None:
    """Open the configured server or model, else MaxSim if the index keeps token states, else
    none.
    """
    if settings.rerank.base_url:
        from engines.rerank.http import HttpReranker

        rerank = settings.rerank
        server = build_server_settings(rerank, "rerank", require_model(rerank, "rerank"), watch)
        remote = HttpReranker(
            server,
            api=rerank.api,
            batch=rerank.batch,
            parallel=rerank.parallel,
            retry_policy=build_retry_policy(rerank),
        )
        stack.push_async_callback(remote.close)
        return remote
    if settings.rerank.model:
        from engines.named_models import NamedReranker

        return await asyncio.to_thread(
            NamedReranker,
            resolve_models_folder(settings),
            settings.rerank.model,
            threads=resolve_thread_count(settings),
        )
    # MaxSim compares token states, and this index has none.
    if not generation.config.embed.state_dimension:
        return None
    from engines.rerank.maxsim import MaxSimReranker

    return MaxSimReranker()


async def open_chat(
    settings: Settings,
    stack: AsyncExitStack,
    watch: WatchFor,
    task: ChatTask | Literal["chat"] = "chat",
) -> ChatModel | None:
    """Open the chat model of a task: its own server, else that of `CHAT__`, else none."""
    server = settings.chat if task == "chat" else settings.resolve_chat_server(task)
    if not server.base_url:
        return None
    from engines.chat.openai import OpenAIChat

    chat = OpenAIChat(
        build_server_settings(server, task, require_model(server, task), watch),
        retry_policy=build_retry_policy(server),
    )
    stack.push_async_callback(chat.close)
    return chat


def open_blob_store(settings: Settings, temporary: Path | None = None) -> BlobStore:
    secret = settings.storage.secret_key
    return open_blobs(
        settings.storage.url or (Path(settings.data_dir).resolve() / "blobs").as_uri(),
        access_key=settings.storage.access_key,
        secret_key=secret.get_secret_value() if secret else None,
        region=settings.storage.region,
        temporary_dir=temporary,
    )


def describe_backends(settings: Settings) -> dict[str, str]:
    """Return the kind of each backend, without addresses."""
    blobs = urlsplit(settings.storage.url or "file:").scheme
    return {
        "database": "postgres",
        "log": settings.log_kind,
        "blobs": {"file": "folder"}.get(blobs, blobs),
        "graph": "bolt" if settings.graph.bolt_url else "tables",
    }


def build_disk_reserve(settings: Settings) -> DiskReserve:
    """Reserve space on the disks of the data folder and of a blob store that is a folder."""
    storage_url = urlsplit(settings.storage.url or "")
    folders = [
        settings.data_dir.resolve(),
        *([Path(unquote(storage_url.path))] if storage_url.scheme == "file" else []),
    ]
    return DiskReserve(tuple(folders), settings.api.disk_reserve)


def build_fetcher(ingest: IngestSettings, blobs: BlobStore) -> HttpFetcher:
    from engines.http_fetcher import HttpFetcher

    return HttpFetcher(
        blobs,
        allowed_hosts=frozenset(ingest.url_allow),
        max_bytes=ingest.max_bytes,
        timeout_s=ingest.fetch_timeout_s,
    )


def build_limits(ingest: IngestSettings) -> IngressLimits:
    """Build the limits. Without `ingest.sources`, every source may write for the default tenant."""
    sources, takeover, topics = (
        {name: frozenset(values) for name, values in setting.items()}
        for setting in (ingest.sources, ingest.takeover, ingest.topics)
    )
    # Left out if empty, so that the default of IngressLimits applies.
    optional_limits = {"tenants_by_source": sources} if sources else {}
    return IngressLimits(
        ingest.max_bytes,
        ingest.inline_bytes,
        ingest.max_pages,
        takeover_by_source=takeover,
        sources_by_topic=topics,
        **optional_limits,
    )


@asynccontextmanager
async def open_graph_server(settings: GraphSettings) -> AsyncIterator[GraphServer | None]:
    if settings.bolt_url is None:
        yield None
        return
    # Imported here: the driver takes 0.1 s to import, and few installations have a graph server.
    from engines.graph.bolt import open_bolt_graph

    auth = (settings.user, settings.password.get_secret_value()) if settings.user else None
    async with open_bolt_graph(
        settings.bolt_url,
        auth,
        settings.databases,
        timeout_s=settings.timeout_s,
        max_rows=settings.max_rows,
    ) as graph:
        yield graph
