"""A generation: one complete index with the whole configuration that makes it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from schemas.ids import fingerprint
from schemas.values import Value

GenerationState = Literal["building", "shadow", "live", "standby", "dropped"]


class ParseConfig(Value):
    engine: str = "local"
    fingerprint: str = ""


class OcrConfig(Value):
    engine: str = Field("rapidocr", description="rapidocr, or openai for a vision model on an OpenAI-compatible server (DeepSeek-OCR on vLLM)")
    model: str = ""
    fingerprint: str = ""


class ChunkConfig(Value):
    strategy: Literal["structure", "fixed_size"] = "structure"
    parent_tokens: int = Field(900, ge=100, le=4000, title="Parent size", description="tokens of a parent chunk at most")
    child_tokens: int = Field(200, ge=32, le=500, title="Child size", description="tokens of a child chunk, about")
    whole_tokens: int = Field(250, ge=32, le=500, description="a section up to this long is one child")
    overlap: float = Field(0.0, ge=0.0, le=0.5, description="share of a fixed-size chunk repeated in the next")
    fingerprint: str = ""


class ExtractConfig(Value):
    engine: str = Field("rules", description="rules, or openai")
    model: str = ""
    fingerprint: str = ""


class EmbedConfig(Value):
    engine: str = Field("e5", description="e5, or openai for any OpenAI-compatible server")
    model: str = "multilingual-e5-small"
    dimension: int = Field(384, ge=1, le=4000)
    state_dimension: int = Field(64, ge=0, le=384, description="token states kept for MaxSim; 0 keeps none")
    fingerprint: str = ""


class LexicalConfig(Value):
    avgdl: int = Field(100, description="lexemes; a constant, so that rows do not depend on history")
    k1: float = 1.2
    b: float = 0.75


class IndexConfig(Value):
    """Each stage's full configuration, without addresses and secrets. An engine's fingerprint is filled in by the composition."""

    parse: ParseConfig = ParseConfig()
    ocr: OcrConfig = OcrConfig()
    chunk: ChunkConfig = ChunkConfig()
    extract: ExtractConfig = ExtractConfig()
    embed: EmbedConfig = EmbedConfig()
    lexical: LexicalConfig = LexicalConfig()


class Generation(Value):
    name: str = Field(pattern=r"^[a-z][a-z0-9_]{0,30}$")
    config: IndexConfig
    how: dict[str, str] = Field(description="stage → fingerprint of the chain of stages that makes its output")
    topics: dict[str, str] = Field(description="topic of the plain pipeline → topic that this generation uses, both without prefix")
    state: GenerationState = "building"


UPSTREAM_STAGES: dict[str, str | None] = {"transcribe": None, "chunk": "transcribe", "extract": "chunk", "embed": "chunk"}
"""Each stage that makes facts, and the one whose facts it reads."""


def compute_stage_fingerprint(stage: str, config: IndexConfig, version: int, upstream: str | None) -> str:
    """The `how` of one stage: its version, its configuration, and the `how` of the stage before it."""
    parts: dict[str, list[Any]] = {
        "transcribe": [config.parse.model_dump(), config.ocr.model_dump()],
        "chunk": [config.chunk.model_dump()],
        "extract": [config.extract.model_dump()],
        "embed": [config.embed.model_dump()],
    }
    return fingerprint(stage, version, parts[stage], upstream)


def compute_chain_fingerprints(config: IndexConfig, versions: dict[str, int]) -> dict[str, str]:
    """The `how` of each stage. `versions` are the integers in the stages' files."""
    fingerprints: dict[str, str] = {}
    for stage, upstream in UPSTREAM_STAGES.items():
        fingerprints[stage] = compute_stage_fingerprint(stage, config, versions[stage], fingerprints[upstream] if upstream else None)
    return fingerprints
