"""Engines by configuration: what they are comes from the generation, where they are from the settings."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from anabranch.composition.overrides import NONE, Overrides, unwatched
from anabranch.settings import ModelSettings, Settings
from engines.ocr import Ocr
from engines.resilience import Watch
from engines.server_settings import ServerSettings
from schemas.errors import ConfigurationError
from schemas.generations import EmbedConfig, ExtractConfig, IndexConfig, OcrConfig
from schemas.ports.engines import Chunker, Embedder, Extractor, Languages, Parser

Watching = Callable[[str], Watch]


@dataclass(frozen=True, slots=True)
class Engines:
    """What makes the index."""

    parser: Parser
    chunker: Chunker
    extractor: Extractor
    embedder: Embedder
    languages: Languages


@asynccontextmanager
async def prepare_engines(settings: Settings, config: IndexConfig, overrides: Overrides = NONE) -> AsyncIterator[Engines]:
    from engines.chunk import chunker_for
    from engines.languages import LiteLanguages

    watch, overrides = overrides.watch, overrides.of(config)
    async with AsyncExitStack() as stack:
        yield Engines(
            parser=overrides.parser or await _parser(settings, config.ocr, stack, watch),
            chunker=overrides.chunker or chunker_for(config.chunk),
            extractor=overrides.extractor or await _extractor(settings, config.extract, stack, watch),
            embedder=overrides.embedder or await embedder_of(settings, config.embed, stack, watch),
            languages=overrides.languages or LiteLanguages(),
        )


async def embedder_of(settings: Settings, config: EmbedConfig, stack: AsyncExitStack, watch: Watching = unwatched) -> Embedder:
    match config.engine:
        case "e5":
            from engines.embed.e5 import E5Embedder

            local = E5Embedder(models_folder(settings), state_dimension=config.state_dimension, threads=threads(settings))
            stack.callback(local.close)
            return local
        case "openai":
            from engines.embed.openai import OpenAIEmbedder

            remote = OpenAIEmbedder(server(settings.embed, "embed", config.model, watch), dimension=config.dimension)
            stack.push_async_callback(remote.close)
            return remote
    raise _unknown("embed", config.engine)


async def _parser(settings: Settings, config: OcrConfig, stack: AsyncExitStack, watch: Watching = unwatched) -> Parser:
    from engines.parse import LocalParser

    parser = LocalParser(
        await _ocr(settings, config, stack, watch),
        max_pages=settings.ingest.max_pages,
        max_characters=settings.ingest.max_characters,
        characters_per_byte=settings.ingest.characters_per_byte,
        deadline_s=settings.worker.parse_deadline_s,
        memory_bytes=settings.worker.parse_memory,
        workers=min(2, os.cpu_count() or 1),
    )
    stack.push_async_callback(parser.aclose)
    return parser


async def _ocr(settings: Settings, config: OcrConfig, stack: AsyncExitStack, watch: Watching = unwatched) -> Ocr:
    match config.engine:
        case "rapidocr":
            from engines.ocr.rapidocr import RapidOcr

            local = RapidOcr(workers=min(2, os.cpu_count() or 1))
            stack.push_async_callback(local.aclose)
            return local
        case "openai":
            from engines.ocr.openai import OpenAIOcr

            remote = OpenAIOcr(server(settings.ocr, "ocr", config.model, watch))
            stack.push_async_callback(remote.aclose)
            return remote
    raise _unknown("ocr", config.engine)


async def _extractor(settings: Settings, config: ExtractConfig, stack: AsyncExitStack, watch: Watching = unwatched) -> Extractor:
    match config.engine:
        case "rules":
            from engines.extract.rules import RuleExtractor

            return RuleExtractor()
        case "openai":
            from engines.chat.openai import OpenAIChat
            from engines.extract.openai import OpenAIExtractor

            chat = OpenAIChat(server(settings.extraction_server(), "extract", config.model, watch))
            stack.push_async_callback(chat.close)
            return OpenAIExtractor(chat)
    raise _unknown("extract", config.engine)


def server(model: ModelSettings, section: str, name: str, watch: Watching = unwatched) -> ServerSettings:
    """Where the model `name` is served, and with what key. Raises ConfigurationError where it needs a server that no setting names."""
    if not model.base_url:
        remedy = f"Set ANABRANCH_{section.upper()}__BASE_URL."
        raise ConfigurationError(f"the index was built with a model server for {section}, and {section}.base_url is not set", remedy=remedy)
    key = model.api_key.get_secret_value() if model.api_key else ""
    return ServerSettings(model.base_url, name, key, model.kind or "openai", model.api_version, watch=watch(section))


def models_folder(settings: Settings) -> Path:
    """What engines compute once and keep."""
    return settings.data_dir.resolve() / "models"


def threads(settings: Settings) -> int:
    return settings.worker.threads or os.cpu_count() or 1


def _unknown(section: str, engine: str) -> ConfigurationError:
    return ConfigurationError(f"{section}.engine {engine!r} is not known to this version", remedy="Upgrade this program.")
