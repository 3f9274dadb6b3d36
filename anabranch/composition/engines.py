"""Open engines: the generation's configuration selects them, the settings locate their servers."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import fields, replace

from anabranch.config.loader import resolve_generation_settings
from anabranch.config.model_servers import (
    WatchFor,
    build_server_settings,
    build_unknown_engine_error,
    resolve_models_folder,
    resolve_thread_count,
)
from anabranch.config.overrides import NO_OVERRIDES, Overrides, watch_nothing
from anabranch.config.settings import Settings
from engines.parsed_blocks import OcrEngine
from schemas.generations import EmbedConfig, ExtractConfig, Generation, IndexConfig, OcrConfig
from schemas.ports.engines import Embedder, Extractor, Parser
from services.engines import Engines
from services.worker.engine_registry import OpenEngines, SharedEngines


@asynccontextmanager
async def prepare_engines(
    settings: Settings, config: IndexConfig, overrides: Overrides = NO_OVERRIDES
) -> AsyncIterator[Engines]:
    from engines.chunk import create_chunker
    from engines.language_detector import FastTextLanguageDetector

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
        merged = replace(overrides.resolve_for(generation.config), for_config=None, **reused)
        return prepare_engines(
            resolve_generation_settings(settings, generation.name), generation.config, merged
        )

    return open_engines


async def open_embedder(
    settings: Settings, config: EmbedConfig, stack: AsyncExitStack, watch: WatchFor = watch_nothing
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
        case "openai":
            from engines.embed.openai import OpenAIEmbedder

            remote = OpenAIEmbedder(
                build_server_settings(settings.embed, "embed", config.model, watch),
                dimension=config.dimension,
            )
            stack.push_async_callback(remote.close)
            return remote
    raise build_unknown_engine_error("embed", config.engine)


async def _open_parser(
    settings: Settings, config: OcrConfig, stack: AsyncExitStack, watch: WatchFor = watch_nothing
) -> Parser:
    from engines.parse import LocalParser

    parser = LocalParser(
        await _open_ocr(settings, config, stack, watch),
        max_pages=settings.ingest.max_pages,
        max_characters=settings.ingest.max_characters,
        characters_per_byte=settings.ingest.characters_per_byte,
        deadline_s=settings.worker.parse_deadline_s,
        memory_bytes=settings.worker.parse_memory,
        workers=min(2, os.cpu_count() or 1),
    )
    stack.push_async_callback(parser.aclose)
    return parser


async def _open_ocr(
    settings: Settings, config: OcrConfig, stack: AsyncExitStack, watch: WatchFor = watch_nothing
) -> OcrEngine:
    match config.engine:
        case "rapidocr":
            from engines.ocr.rapidocr import RapidOcr

            local = RapidOcr(workers=min(2, os.cpu_count() or 1))
            stack.push_async_callback(local.aclose)
            return local
        case "openai":
            from engines.ocr.openai import OpenAIOcr

            remote = OpenAIOcr(build_server_settings(settings.ocr, "ocr", config.model, watch))
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

            chat = OpenAIChat(
                build_server_settings(
                    settings.resolve_extraction_server(), "extract", config.model, watch
                )
            )
            stack.push_async_callback(chat.close)
            return OpenAIExtractor(chat)
    raise build_unknown_engine_error("extract", config.engine)
