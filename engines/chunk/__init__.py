"""Chunking of transcripts, one strategy per file."""

from __future__ import annotations

from engines.chunk.fixed_size import FixedSizeChunker
from engines.chunk.structure import StructureChunker
from schemas.generations import ChunkConfig
from schemas.ports.engines import Chunker

__all__ = ["FixedSizeChunker", "StructureChunker", "create_chunker"]


def create_chunker(config: ChunkConfig) -> Chunker:
    match config.strategy:
        case "structure":
            return StructureChunker(config)
        case "fixed_size":
            return FixedSizeChunker(config)
