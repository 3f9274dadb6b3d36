"""OCR with scripted texts, and an embedder that rejects texts."""

from __future__ import annotations

from collections.abc import Sequence

from engines.parsed_blocks import ParsedBlock
from schemas.errors import PermanentError
from schemas.ports.engines import TextEmbedding
from tests.fakes.null_embedder import NullEmbedder


class FakeOcr:
    """OcrEngine that returns the same paragraph for every page, or nothing without words."""

    def __init__(self, words: str = "") -> None:
        self.fingerprint = f"fake-ocr:{words}"
        self.pages_read = 0
        self._words = words

    async def read(self, image: bytes, *, subject: str) -> list[ParsedBlock]:
        self.pages_read += 1
        return (
            [ParsedBlock("paragraph", self._words, box=(0.1, 0.1, 0.9, 0.2))] if self._words else []
        )

    async def aclose(self) -> None: ...


class RejectingEmbedder(NullEmbedder):
    """Reject texts that contain one of `rejected_words`, until a test empties it."""

    def __init__(self, dimension: int = 64, state_dimension: int = 16) -> None:
        super().__init__(dimension, state_dimension)
        self.rejected_words: set[str] = {"heron"}
        self.n_calls = 0

    async def embed(self, texts: Sequence[str]) -> list[TextEmbedding]:
        self.n_calls += 1
        if any(word in text for word in self.rejected_words for text in texts):
            raise PermanentError("this text is not to its liking", code="CHOOSY")
        return await super().embed(texts)
