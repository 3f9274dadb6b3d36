"""Generations: complete indexes, each with the configuration that it is built with."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from schemas.ids import fingerprint
from schemas.values import Value

GenerationState = Literal["building", "shadow", "live", "standby", "dropped"]


class ParseConfig(Value):
    engine: str = Field("local", description="Parser to use.")
    fingerprint: str = Field("", description="Fingerprint of the engine, filled in at start.")


class OcrConfig(Value):
    engine: str = "rapidocr"
    """`rapidocr`, or `openai` for a vision model on an OpenAI-compatible server (such as
    DeepSeek-OCR on vLLM).
    """
    model: str = Field("", description="Model name on the server.")
    fingerprint: str = Field("", description="Fingerprint of the engine, filled in at start.")


class ChunkSizes(Value):
    """How documents are split."""

    strategy: Literal["structure", "fixed_size"] = "structure"
    """Split by document structure, or into pieces of fixed size."""
    parent_tokens: int = Field(900, ge=100, le=4000, title="Parent size")
    """Maximum tokens of a parent chunk."""
    child_tokens: int = Field(330, ge=32, le=500, title="Child size")
    """Target tokens of a child chunk."""
    whole_tokens: int = Field(450, ge=32, le=500)
    """A section of at most this many tokens becomes a single child chunk."""
    overlap: float = Field(0.0, ge=0.0, le=0.5)
    """Share of a fixed-size chunk that is repeated in the next."""


TypeName = Annotated[str, Field(min_length=1, max_length=64)]
TypeNames = Annotated[tuple[TypeName, ...], Field(max_length=100)]


class EntitySchema(Value):
    """Types to extract. Empty `relations` or `properties` allow any."""

    entities: Annotated[TypeNames, Field(min_length=1)] = (
        *("PERSON", "ORG", "LOC", "IDENTIFIER", "DATE", "MONEY", "MISC"),
    )
    """Types of entities. The local rules find only the default ones."""
    relations: TypeNames = Field((), description="Types of relations.")
    properties: TypeNames = Field((), description="Names of claims about an entity.")


class CollectionProcessing(Value):
    """How documents of a collection are processed where the generation says otherwise."""

    chunk: ChunkSizes | None = None
    extract: EntitySchema | None = None


class ChunkConfig(ChunkSizes):
    fingerprint: str = Field("", description="Fingerprint of the chunker, filled in at start.")


class ExtractConfig(Value):
    engine: str = Field("rules", description="`rules` or `openai`.")
    model: str = Field("", description="Model name on the server.")
    fingerprint: str = Field("", description="Fingerprint of the engine, filled in at start.")


class EmbedConfig(Value):
    engine: str = "e5"
    """`e5`, `named` for a model by name in this process, or interface of a server: `openai`,
    `cohere`.
    """
    model: str = Field("multilingual-e5-small", description="Model name.")
    dimension: int = Field(384, ge=1, le=4000, description="Dimension of chunk vectors.")
    state_dimension: int = Field(256, ge=0, le=384)
    """Dimension of the token states for MaxSim. 0 stores none."""
    fingerprint: str = Field("", description="Fingerprint of the engine, filled in at start.")


class LexicalConfig(Value):
    """Constants of BM25. Generated columns weigh terms by them, queries bound scores."""

    avgdl: int = 100
    """Average length of a chunk in lexemes. A constant, so that scores do not depend on the order
    of ingestion.
    """
    k1: float = Field(1.2, description="BM25 term frequency saturation.")
    b: float = Field(0.75, description="BM25 length normalization.")

    def compute_weight(self, count: float, length: float) -> float:
        """Return the weight of a term that occurs `count` times among `length` lexemes."""
        if not count:
            return 0.0
        # Must match `lexical_weights` in SQL, which computes the stored weights.
        damping = self.k1 * (1 - self.b + self.b * length / self.avgdl)
        return count * (self.k1 + 1) / (count + damping)

    @property
    def max_weight(self) -> float:
        """Return the limit of a term's weight, which a long chunk of this one term approaches."""
        return (self.k1 + 1) / (1 + self.k1 * self.b / self.avgdl)


class HnswConfig(Value):
    """Constants of the vector index: an HNSW graph (Malkov and Yashunin, 2016)."""

    m: int = Field(16, ge=2, le=100)
    """Links of a vector in each layer of the index. More raise recall, size and build time."""
    ef_construction: int = Field(128, ge=4, le=1000)
    """Candidates that the build compares for each vector, at least twice `m`. More raise recall and
    build time.
    """
    exact_below: int = Field(20_000, ge=0, le=1_000_000)
    """Number of vectors below which no index is built and all are compared, as are those of the
    documents that filters select.
    """

    @model_validator(mode="after")
    def _check_candidates(self) -> HnswConfig:
        if self.ef_construction < 2 * self.m:
            raise ValueError(
                f"ef_construction {self.ef_construction} is less than twice m ({self.m})"
            )
        return self


class IndexConfig(Value):
    """Configuration of each stage, without addresses and secrets."""

    parse: ParseConfig = ParseConfig()
    ocr: OcrConfig = OcrConfig()
    chunk: ChunkConfig = ChunkConfig()
    extract: ExtractConfig = ExtractConfig()
    embed: EmbedConfig = EmbedConfig()
    lexical: LexicalConfig = LexicalConfig()
    hnsw: HnswConfig = HnswConfig()

    @property
    def calls_model_servers(self) -> bool:
        """Return whether a server embeds or extracts, which may take seconds."""
        return self.extract.engine != "rules" or self.embed.engine != "e5"


class Generation(Value):
    """One complete index with its configuration."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]{0,30}$")
    """Name of the generation, such as `g1`."""
    config: IndexConfig = Field(description="Configuration that the generation is built with.")
    how: dict[str, str]
    """Pipeline fingerprint by stage: the configuration of the stage and of all stages before it."""
    topics: dict[str, str]
    """Topic of the default pipeline → topic of this generation, both without prefix."""
    state: GenerationState = "building"
    """State in the life cycle of the generation."""


UPSTREAM_STAGES: dict[str, str | None] = {
    "transcribe": None,
    "chunk": "transcribe",
    "extract": "chunk",
    "embed": "chunk",
}
"""Each stage that emits to a topic per generation, and the stage whose events it reads.

A fingerprint and a place in a reindex follow from its line. Importing `processors` fails if a stage
has none.
"""


def compute_stage_fingerprint(
    stage: str, config: IndexConfig, version: int, upstream: str | None
) -> str:
    """Hash a stage's version, its configuration and the fingerprint of its upstream stage.

    Every section of the configuration belongs to a stage; BM25 weights are computed from chunks,
    and the vector index from embeddings.
    Stages without a section depend on their version and their input only.
    """
    parts: dict[str, list[Any]] = {
        "transcribe": [config.parse.model_dump(), config.ocr.model_dump()],
        "chunk": [config.chunk.model_dump(), config.lexical.model_dump()],
        "extract": [config.extract.model_dump()],
        # Without defaults: generations from before these settings keep their fingerprints.
        "embed": [config.embed.model_dump(), *_list_unless_default(config.hnsw)],
    }
    return fingerprint(stage, version, parts.get(stage, []), upstream)


def _list_unless_default(config: HnswConfig) -> list[dict[str, Any]]:
    return [config.model_dump()] if config != HnswConfig() else []


def compute_chain_fingerprints(config: IndexConfig, versions: dict[str, int]) -> dict[str, str]:
    """Return the pipeline fingerprint of each stage.

    `versions` are the version numbers that the stages declare.
    """
    fingerprints: dict[str, str] = {}
    for stage, upstream in UPSTREAM_STAGES.items():
        # Upstream stages come first in `UPSTREAM_STAGES`, so their fingerprints are known here.
        fingerprints[stage] = compute_stage_fingerprint(
            stage, config, versions[stage], fingerprints[upstream] if upstream else None
        )
    return fingerprints
