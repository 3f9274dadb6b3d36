"""Settings that change an index, and engines whose results show which stages ran."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from anabranch.composition.sources import build_reindex_service
from anabranch.config.overrides import Overrides
from anabranch.identity.approvals import approve, find_restricted_settings
from engines.chunk import create_chunker
from schemas.generations import UPSTREAM_STAGES, EntitySchema, IndexConfig
from schemas.ids import fingerprint
from schemas.ports.engines import Extractor, LocalFile, ParsePlan
from schemas.values import Extraction, Mention, ParentChunk, Transcript
from services.generations.reindex import ReindexService
from services.generations.service import remove_generation
from sql.index.generation_switch import switch_generation
from tests.fakes.null_embedder import NullEmbedder
from tests.support.pipeline import Pipeline
from tests.support.simulated_pipeline import LineParser

WORDS = "heron stork crane rail coot grebe swan teal duck goose"


TEXTS: dict[str, str | None] = {
    f"doc-{number}": f"{WORDS} {number}\nNumber {number} flies.\n{WORDS}" for number in range(12)
}


MODEL_SERVER_URL = "http://127.0.0.1:1"


FROM_CHUNK = [stage for stage, upstream in UPSTREAM_STAGES.items() if "chunk" in (stage, upstream)]
SETTING_CHANGES = {
    "parser": (
        ["ocr.base_url=" + MODEL_SERVER_URL, "ocr.model=shouting"],
        list(UPSTREAM_STAGES),
    ),
    "chunker": (
        ["chunk.strategy=fixed_size", "chunk.child_tokens=32"],
        FROM_CHUNK,
    ),
    "lexical": (["lexical.k1=0.9", "lexical.b=0.5"], FROM_CHUNK),
    "vector index": (["hnsw.m=8", "hnsw.exact_below=100"], ["embed"]),
    "extractor": (
        ["extract.base_url=" + MODEL_SERVER_URL, "extract.model=all", "extract.engine=openai"],
        ["extract"],
    ),
    "embedder": (
        ["embed.base_url=" + MODEL_SERVER_URL, "embed.model=wide", "embed.dimension=24"],
        ["embed"],
    ),
}


APPROVED_SETTINGS = [
    one for sets, _ in SETTING_CHANGES.values() for one in find_restricted_settings(sets)
]


class ShoutingParser(LineParser):
    fingerprint = "shouting"

    def assemble(self, file: LocalFile, plan: ParsePlan, parts: Sequence[bytes]) -> Transcript:
        transcript = super().assemble(file, plan, parts)
        return transcript.model_copy(update={"markdown": transcript.markdown.upper()})


class FirstWordExtractor:
    """Extract the first word of each chunk as a name."""

    def __init__(self, model: str) -> None:
        self.fingerprint = fingerprint("first words", model)

    def with_schema(self, schema: EntitySchema) -> Extractor:
        return self

    async def extract(self, parents: Sequence[ParentChunk], language: str | None) -> Extraction:
        found = [
            (child.id, child.text.split()[0], child.char_start)
            for parent in parents
            for child in parent.children
            if child.text.split()
        ]
        return Extraction(mentions=[_make_mention(*one) for one in found])


def make_overrides(config: IndexConfig) -> Overrides:
    return Overrides(
        parser=ShoutingParser() if config.ocr.model else LineParser(),
        chunker=create_chunker(config.chunk),
        extractor=FirstWordExtractor(config.extract.model),
        embedder=NullEmbedder(
            dimension=config.embed.dimension if config.embed.engine == "openai" else 8
        ),
    )


OVERRIDES = Overrides(for_config=make_overrides)


def make_reindex_service(at_work: Pipeline, overrides: Overrides = OVERRIDES) -> ReindexService:
    approve(at_work.worker.settings.data_dir, "settings", APPROVED_SETTINGS)
    return build_reindex_service(
        at_work.worker.settings, at_work.worker.storage, at_work.worker.builder.decisions, overrides
    )


async def promote_generation(at_work: Pipeline, name: str) -> None:
    assert (
        await switch_generation(
            at_work.pool, name, at_work.worker.builder.decisions.publish_promoted
        )
    ).has_moved


async def drop_and_publish(at_work: Pipeline, name: str) -> None:
    await remove_generation(
        at_work.pool, at_work.worker.storage.log, at_work.worker.builder.decisions, name
    )


def _make_mention(chunk: UUID, word: str, start: int) -> Mention:
    return Mention(
        chunk_id=chunk,
        type="WORD",
        key=word.casefold(),
        name=word,
        char_start=start,
        char_end=start + len(word),
    )
