"""Engines of every generation that this worker runs, counting their inputs. Generations with equal
configuration share an engine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from processors import get_stage_versions
from schemas.generations import Generation, IndexConfig
from schemas.ports.engines import (
    Chunker,
    Embedder,
    Extractor,
    LocalFile,
    ParsePlan,
    Parser,
    QueryEmbedding,
    TextEmbedding,
    TokenSpans,
)
from schemas.values import Extraction, ParentChunk, Transcript
from services.engines import (
    Engines,
    add_engine_fingerprints,
    check_config_matches,
    find_outdated_stages,
)
from streams.instrumentation import Instrumentation

if TYPE_CHECKING:
    from services.engines import Engines

CountInputs = Callable[[str, int], None]
"""Called with the engine's name and the number of inputs."""


def count_engine_inputs(engines: Engines, count_inputs: CountInputs) -> Engines:
    return replace(
        engines,
        parser=CountingParser(engines.parser, count_inputs),
        extractor=CountingExtractor(engines.extractor, count_inputs),
        embedder=CountingEmbedder(engines.embedder, count_inputs),
    )


class CountingParser:
    def __init__(self, inner: Parser, count_inputs: CountInputs) -> None:
        self.inner, self.count_inputs = inner, count_inputs
        self.fingerprint = inner.fingerprint

    async def plan(self, file: LocalFile) -> ParsePlan:
        return await self.inner.plan(file)

    async def parse(self, file: LocalFile, plan: ParsePlan, part: str) -> bytes:
        # Before the call, since a failed attempt costs as much.
        self.count_inputs("parse", 1)
        return await self.inner.parse(file, plan, part)

    def assemble(self, file: LocalFile, plan: ParsePlan, parts: Sequence[bytes]) -> Transcript:
        return self.inner.assemble(file, plan, parts)


class CountingExtractor:
    def __init__(self, inner: Extractor, count_inputs: CountInputs) -> None:
        self.inner, self.count_inputs = inner, count_inputs
        self.fingerprint = inner.fingerprint

    async def extract(self, parents: Sequence[ParentChunk], language: str | None) -> Extraction:
        self.count_inputs("extract", 1)
        return await self.inner.extract(parents, language)


class CountingEmbedder:
    def __init__(self, inner: Embedder, count_inputs: CountInputs) -> None:
        self.inner, self.count_inputs = inner, count_inputs
        self.fingerprint, self.model = inner.fingerprint, inner.model
        self.dimension, self.state_dimension = inner.dimension, inner.state_dimension

    async def embed(self, texts: Sequence[str]) -> list[TextEmbedding]:
        self.count_inputs("embed", len(texts))
        return await self.inner.embed(texts)

    async def embed_query(self, text: str) -> QueryEmbedding:
        # Queries are not part of a build, so they are not counted.
        return await self.inner.embed_query(text)

    async def locate_tokens(self, texts: Sequence[str]) -> list[TokenSpans]:
        return await self.inner.locate_tokens(texts)


@dataclass(slots=True)
class SharedEngines:
    """Engines of other generations that a generation can use too; None where it needs its own."""

    parser: Parser | None = None
    chunker: Chunker | None = None
    extractor: Extractor | None = None
    embedder: Embedder | None = None


OpenEngines = Callable[[Generation, SharedEngines], AbstractAsyncContextManager[Engines]]


@dataclass(slots=True)
class EngineRegistry:
    """Open engines, and share them between generations. They are closed with `stack`."""

    open_engines: OpenEngines
    instrumentation: Instrumentation
    stack: AsyncExitStack
    prepared: list[tuple[IndexConfig, Engines]] = field(default_factory=list)
    input_counts: dict[str, Counter[str]] = field(default_factory=dict)
    """Generation to engine to the number of inputs since the last `take_input_counts`."""

    def add(self, config: IndexConfig, engines: Engines) -> None:
        self.prepared.append((config, engines))

    async def get_counting(self, generation: Generation) -> Engines:
        """Return the engines of the generation, wrapped to count their inputs.

        Raises ConfigurationError if a model server has no URL, GenerationMismatch if an engine
        differs from the generation's configuration.
        """
        counts = self.input_counts.setdefault(generation.name, Counter())

        def count_inputs(engine: str, inputs: int) -> None:
            self.instrumentation.count_engine_inputs(engine, inputs)
            counts[engine] += inputs

        return count_engine_inputs(await self._get_or_prepare(generation), count_inputs)

    async def find_outdated_stages(self, generation: Generation) -> list[str]:
        """List the stages that another program version built. Raises as `get_counting` does."""
        return find_outdated_stages(
            generation,
            add_engine_fingerprints(generation.config, await self._get_or_prepare(generation)),
            get_stage_versions(),
        )

    def take_input_counts(self, generation: str) -> dict[str, int]:
        """Return the input counts since the last call, and reset them."""
        counts = self.input_counts.get(generation, Counter())
        taken_counts = dict(counts)
        counts.clear()
        return taken_counts

    async def _get_or_prepare(self, generation: Generation) -> Engines:
        config = generation.config
        for prepared_config, engines in self.prepared:
            if prepared_config == config:
                return engines
        engines = await self.stack.enter_async_context(
            self.open_engines(generation, self._find_shared(config))
        )
        # A model server may serve another model than the settings name.
        check_config_matches(add_engine_fingerprints(config, engines), config, generation.name)
        self.add(config, engines)
        return engines

    def _find_shared(self, config: IndexConfig) -> SharedEngines:
        shared = SharedEngines()
        for prepared_config, engines in self.prepared:
            # The parser includes OCR.
            if (prepared_config.parse, prepared_config.ocr) == (config.parse, config.ocr):
                shared.parser = engines.parser
            if prepared_config.chunk == config.chunk:
                shared.chunker = engines.chunker
            if prepared_config.extract == config.extract:
                shared.extractor = engines.extractor
            if prepared_config.embed == config.embed:
                shared.embedder = engines.embedder
        return shared
