"""Engines of the write side that say how much they are asked: what a memo knows never comes here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from schemas.ports.engines import Embedded, EmbeddedQuery, Embedder, Extractor, File, ParsePlan, Parser
from schemas.values import Extraction, ParentChunk, Transcript
from streams.observe import Observer

if TYPE_CHECKING:
    from anabranch.composition.engines import Engines


def counted(engines: Engines, observer: Observer) -> Engines:
    return replace(
        engines,
        parser=CountedParser(engines.parser, observer),
        extractor=CountedExtractor(engines.extractor, observer),
        embedder=CountedEmbedder(engines.embedder, observer),
    )


class CountedParser:
    def __init__(self, inner: Parser, observer: Observer) -> None:
        self.inner, self.observer = inner, observer
        self.fingerprint = inner.fingerprint

    async def plan(self, file: File) -> ParsePlan:
        return await self.inner.plan(file)

    async def parse(self, file: File, plan: ParsePlan, part: str) -> bytes:
        self.observer.asked_engine("parse", 1)
        return await self.inner.parse(file, plan, part)

    def assemble(self, file: File, plan: ParsePlan, parts: Sequence[bytes]) -> Transcript:
        return self.inner.assemble(file, plan, parts)


class CountedExtractor:
    def __init__(self, inner: Extractor, observer: Observer) -> None:
        self.inner, self.observer = inner, observer
        self.fingerprint = inner.fingerprint

    async def extract(self, parents: Sequence[ParentChunk], language: str | None) -> Extraction:
        self.observer.asked_engine("extract", 1)
        return await self.inner.extract(parents, language)


class CountedEmbedder:
    def __init__(self, inner: Embedder, observer: Observer) -> None:
        self.inner, self.observer = inner, observer
        self.fingerprint, self.model = inner.fingerprint, inner.model
        self.dimension, self.state_dimension = inner.dimension, inner.state_dimension

    async def embed(self, texts: Sequence[str]) -> list[Embedded]:
        self.observer.asked_engine("embed", len(texts))
        return await self.inner.embed(texts)

    async def embed_query(self, text: str) -> EmbeddedQuery:
        return await self.inner.embed_query(text)
