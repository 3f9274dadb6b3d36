"""Engines without cost, so that a benchmark measures everything else."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from anabranch.config.overrides import Overrides
from schemas.generations import EntitySchema
from schemas.ids import content_id, fingerprint
from schemas.ports.engines import (
    Extractor,
    LocalFile,
    ParsePlan,
    QueryEmbedding,
    TextEmbedding,
    TokenSpans,
)
from schemas.values import Block, ChildChunk, Extraction, ParentChunk, Span, Transcript

CHILD_WORDS = 150


class NullExtractor:
    """Finds nothing."""

    fingerprint = fingerprint("no-extractor")

    def with_schema(self, schema: EntitySchema) -> Extractor:
        return self

    async def extract(self, parents: Sequence[ParentChunk], language: str | None) -> Extraction:
        return Extraction()


class NullParser:
    """Parses the text as a single paragraph."""

    fingerprint = "null"

    async def plan(self, file: LocalFile) -> ParsePlan:
        return ParsePlan("text/plain", ("all",), None)

    async def parse(self, file: LocalFile, plan: ParsePlan, part: str) -> bytes:
        return file.path.read_bytes()

    def assemble(self, file: LocalFile, plan: ParsePlan, parts: Sequence[bytes]) -> Transcript:
        text = parts[0].decode()
        return Transcript(
            markdown=text,
            blocks=[Block(kind="paragraph", span=Span(char_start=0, char_end=len(text)))],
            language="en",
        )


class FlatEmbedder:
    """Derives a vector from the text's hash."""

    fingerprint, model, dimension, state_dimension = "flat", "flat", 384, 0

    async def embed(self, texts: Sequence[str]) -> list[TextEmbedding]:
        return [TextEmbedding(self._vector(text)) for text in texts]

    async def embed_query(self, text: str) -> QueryEmbedding:
        return QueryEmbedding(self._vector(text).astype(np.float32))

    async def locate_tokens(self, texts: Sequence[str]) -> list[TokenSpans]:
        return [np.zeros((0, 2), np.int64) for _ in texts]

    def _vector(self, text: str) -> NDArray[np.float16]:
        vector = np.frombuffer(
            hashlib.shake_128(text.encode()).digest(self.dimension), np.int8
        ).astype(np.float32)
        return (vector / np.linalg.norm(vector)).astype(np.float16)


class WordChunker:
    """Makes one parent with children of 150 words."""

    fingerprint = "words"

    def chunk(
        self, document_id: UUID, title: str | None, transcript: Transcript
    ) -> list[ParentChunk]:
        text = transcript.markdown
        children: list[ChildChunk] = []
        start = 0
        while start < len(text):
            end = _after_words(text, start, CHILD_WORDS)
            piece = text[start:end]
            children.append(
                ChildChunk(
                    id=content_id("chunk", document_id, piece, start),
                    ordinal=len(children),
                    text=piece,
                    char_start=start,
                    char_end=end,
                    spans=[Span(char_start=start, char_end=end)],
                    tokens=CHILD_WORDS,
                )
            )
            start = end
        return [
            ParentChunk(
                id=content_id("parent", document_id),
                ordinal=0,
                text=text,
                char_start=0,
                char_end=len(text),
                tokens=CHILD_WORDS * len(children),
                children=children,
            )
        ]


def _after_words(text: str, start: int, words: int) -> int:
    position = start
    for _ in range(words):
        position = text.find(" ", position + 1)
        if position < 0:
            return len(text)
    return position


def make_null_overrides() -> Overrides:
    return Overrides(
        parser=NullParser(),
        chunker=WordChunker(),
        embedder=FlatEmbedder(),
        extractor=NullExtractor(),
    )
