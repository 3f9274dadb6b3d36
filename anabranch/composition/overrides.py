"""What a test or a benchmark hands in, in place of what the settings would build."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID, uuid4

from engines.resilience import Unwatched, Watch
from schemas.generations import IndexConfig
from schemas.ports.engines import Blobs, Chat, Chunker, Embedder, Extractor, Fetcher, Languages, Parser, Reranker


def now() -> datetime:
    return datetime.now(UTC)


def unwatched(section: str) -> Watch:
    return Unwatched()


@dataclass(frozen=True, slots=True)
class Overrides:
    """None: as the settings say."""

    parser: Parser | None = None
    chunker: Chunker | None = None
    extractor: Extractor | None = None
    embedder: Embedder | None = None
    reranker: Reranker | None = None
    chat: Chat | None = None
    languages: Languages | None = None
    fetcher: Fetcher | None = None
    blobs: Blobs | None = None
    clock: Callable[[], datetime] = now
    fresh_id: Callable[[], UUID] = uuid4
    for_config: Callable[[IndexConfig], Overrides] | None = None
    """Engines by configuration, where generations differ."""
    watch: Callable[[str], Watch] = unwatched
    """By the name of a section (`chat`, `embed`, …): who is told how its server does."""

    def of(self, config: IndexConfig) -> Overrides:
        return self.for_config(config) if self.for_config else self


NONE = Overrides()
