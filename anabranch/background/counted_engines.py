"""Engines of the write side that say how much they are asked: what a memo knows never comes here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from schemas.ports.engines import Embedded, EmbeddedQuery, Embedder, Extractor, File, ParsePlan, Parser
from schemas.values import Extraction, ParentChunk, Transcript

if TYPE_CHECKING:
    from anabranch.composition.engines import Engines


Asked = Callable[[str, int], None]
"""Which engine, about how many inputs."""


def counted(engines: Engines, asked: Asked) -> Engines:
    return replace(
        engines,
        parser=CountedParser(engines.parser, asked),
        extractor=CountedExtractor(engines.extractor, asked),
        embedder=CountedEmbedder(engines.embedder, asked),
    )


class CountedParser:
    def __init__(self, inner: Parser, asked: Asked) -> None:
        self.inner, self.asked = inner, asked
        self.fingerprint = inner.fingerprint

    async def plan(self, file: File) -> ParsePlan:
        return await self.inner.plan(file)

    async def parse(self, file: File, plan: ParsePlan, part: str) -> bytes:
        self.asked("parse", 1)
        return await self.inner.parse(file, plan, part)

    def assemble(self, file: File, plan: ParsePlan, parts: Sequence[bytes]) -> Transcript:
        return self.inner.assemble(file, plan, parts)


class CountedExtractor:
    def __init__(self, inner: Extractor, asked: Asked) -> None:
        self.inner, self.asked = inner, asked
        self.fingerprint = inner.fingerprint

    async def extract(self, parents: Sequence[ParentChunk], language: str | None) -> Extraction:
        self.asked("extract", 1)
        return await self.inner.extract(parents, language)


class CountedEmbedder:
    def __init__(self, inner: Embedder, asked: Asked) -> None:
        self.inner, self.asked = inner, asked
        self.fingerprint, self.model = inner.fingerprint, inner.model
        self.dimension, self.state_dimension = inner.dimension, inner.state_dimension

    async def embed(self, texts: Sequence[str]) -> list[Embedded]:
        self.asked("embed", len(texts))
        return await self.inner.embed(texts)

    async def embed_query(self, text: str) -> EmbeddedQuery:
        return await self.inner.embed_query(text)
