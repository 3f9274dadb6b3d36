"""Parts that a test or benchmark uses instead of those that the settings describe."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID, uuid4

from engines.server_settings import NoServerInstrumentation, ServerInstrumentation
from schemas.generations import IndexConfig
from schemas.ports.engines import (
    BlobStore,
    ChatModel,
    Chunker,
    Embedder,
    Extractor,
    Fetcher,
    LanguageDetector,
    Parser,
    Reranker,
)
from schemas.timestamps import utc_now


def watch_nothing(section: str) -> ServerInstrumentation:
    return NoServerInstrumentation()


@dataclass(frozen=True, slots=True)
class Overrides:
    """None means: build it from the settings."""

    parser: Parser | None = None
    chunker: Chunker | None = None
    extractor: Extractor | None = None
    embedder: Embedder | None = None
    reranker: Reranker | None = None
    chat: ChatModel | None = None
    languages: LanguageDetector | None = None
    fetcher: Fetcher | None = None
    blobs: BlobStore | None = None
    clock: Callable[[], datetime] = utc_now
    fresh_id: Callable[[], UUID] = uuid4
    for_config: Callable[[IndexConfig], Overrides] | None = None
    """Overrides by configuration, for generations that differ."""
    watch: Callable[[str], ServerInstrumentation] = watch_nothing
    """Instrumentation of the model server of a settings section (`chat`, `embed`, …)."""

    def resolve_for(self, config: IndexConfig) -> Overrides:
        return self.for_config(config) if self.for_config else self


NO_OVERRIDES = Overrides()
