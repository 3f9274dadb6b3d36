"""The engines that index one generation."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.ports.engines import Chunker, Embedder, Extractor, LanguageDetector, Parser


@dataclass(frozen=True, slots=True)
class Engines:
    parser: Parser
    chunker: Chunker
    extractor: Extractor
    embedder: Embedder
    languages: LanguageDetector
