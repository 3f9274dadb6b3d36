"""Count the inputs of engines. Memo hits never reach an engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from schemas.ports.engines import (
    Embedder,
    Extractor,
    LocalFile,
    ParsePlan,
    Parser,
    QueryEmbedding,
    TextEmbedding,
)
from schemas.values import Extraction, ParentChunk, Transcript

if TYPE_CHECKING:
    from services.engine_set import Engines


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
        return await self.inner.embed_query(text)
