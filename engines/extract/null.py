"""Extractor that finds nothing, for benchmarks without extraction."""

from __future__ import annotations

from collections.abc import Sequence

from schemas.ids import fingerprint
from schemas.values import Extraction, ParentChunk


class NullExtractor:
    fingerprint = fingerprint("no-extractor")

    async def extract(self, parents: Sequence[ParentChunk], language: str | None) -> Extraction:
        return Extraction()
