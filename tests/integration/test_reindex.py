"""An index with another configuration, built beside the live one: exactly the stages downstream of
the change run, and they cost what the plan said.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

import pytest
from pgvector import HalfVector

from anabranch.composition.reindex import build_reindex_service
from anabranch.config.loader import load_settings
from anabranch.config.overrides import Overrides
from anabranch.config.settings import Settings
from anabranch.identity.approvals import approve, find_restricted_settings
from engines.chunk import create_chunker
from engines.embed.null import NullEmbedder
from schemas.generations import IndexConfig
from schemas.ids import fingerprint
from schemas.ports.engines import LocalFile, ParsePlan
from schemas.questions import Filters
from schemas.values import Extraction, Mention, ParentChunk, Transcript
from services.generations.reindex import ReindexService
from sql.checksum import compute_checksum
from sql.generations import PgGenerations
from sql.query_loader import load_query
from sql.search import PgSearch
from sql.search_scope import SearchScope
from sql.vector_index import ensure_vector_index
from streams.topics import get_partition_counts
from tests.pipeline import Pipeline, run_pipeline
from tests.property.simulated_pipeline import LineParser

WORDS = "heron stork crane rail coot grebe swan teal duck goose"
TEXTS: dict[str, str | None] = {
    f"doc-{number}": f"{WORDS} {number}\nNumber {number} flies.\n{WORDS}" for number in range(12)
}
MODEL_SERVER_URL = "http://127.0.0.1:1"
SETTING_CHANGES = {
    "parser": (
        ["ocr.base_url=" + MODEL_SERVER_URL, "ocr.model=shouting"],
        ["transcribe", "chunk", "extract", "embed"],
    ),
    "chunker": (
        ["chunk.strategy=fixed_size", "chunk.child_tokens=32"],
        ["chunk", "extract", "embed"],
    ),
    "lexical": (["lexical.k1=0.9", "lexical.b=0.5"], ["chunk", "extract", "embed"]),
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
    """The first word of each chunk is a name."""

    def __init__(self, model: str) -> None:
        self.fingerprint = fingerprint("first words", model)

    async def extract(self, parents: Sequence[ParentChunk], language: str | None) -> Extraction:
        found = [
            (child.id, child.text.split()[0], child.char_start)
            for parent in parents
            for child in parent.children
            if child.text.split()
        ]
        return Extraction(mentions=[_make_mention(*one) for one in found])


def _make_mention(chunk: UUID, word: str, start: int) -> Mention:
    return Mention(
        chunk_id=chunk,
        type="WORD",
        key=word.casefold(),
        name=word,
        char_start=start,
        char_end=start + len(word),
    )


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


STAGE_OUTPUTS = {
    "transcribe": "ocr_done",
    "chunk": "chunked",
    "extract": "entities",
    "embed": "embedded",
}


def make_reindex_service(at_work: Pipeline, overrides: Overrides = OVERRIDES) -> ReindexService:
    approve(at_work.worker.settings.data_dir, "settings", APPROVED_SETTINGS)
    return build_reindex_service(
        at_work.worker.settings, at_work.worker.storage, at_work.worker.builder.decisions, overrides
    )


async def count_events(at_work: Pipeline) -> dict[str, int]:
    """Of every generation, how many are in each topic."""
    generations = await PgGenerations(at_work.pool).fetch_undropped()
    named = {topic for generation in generations for topic in generation.topics.values()}
    return {
        topic: await at_work.worker.storage.count_records(topic)
        for topic in {*get_partition_counts(1), *named} - {"control"}
    }


@pytest.fixture
def settings(tmp_path: Path, log_settings: list[str]) -> Settings:
    return load_settings(data_dir=tmp_path, sets=log_settings)


POSTGRES_CASES = [(change, "postgres") for change in SETTING_CHANGES]
KAFKA_CASES = [
    pytest.param(change, "kafka", marks=pytest.mark.kafka) for change in ("parser", "extractor")
]


@pytest.mark.parametrize(
    ("change", "log_kind"), [*POSTGRES_CASES, *KAFKA_CASES], indirect=["log_kind"]
)
async def test_reindex_runs_only_downstream_stages_at_planned_cost(
    change: str, settings: Settings, database: str
) -> None:
    sets, stages = SETTING_CHANGES[change]
    async with run_pipeline(settings.data_dir, database, OVERRIDES, settings) as at_work:
        await at_work.push_and_wait(TEXTS)
        await at_work.push_and_wait(
            {"doc-0": f"Changed.\n{WORDS}", "doc-1": None, "doc-2": TEXTS["doc-2"]}
        )
        before, asked = await count_events(at_work), at_work.count_engine_calls()
        live = await compute_checksum(at_work.pool)
        plan = (await make_reindex_service(at_work).plan_build(sets)).to_dict()
        assert (plan["first_changed_stage"], plan["stages"], plan["covered_by_retention"]) == (
            stages[0],
            stages,
            True,
        )
        assert await count_events(at_work) == before and at_work.count_engine_calls() == asked
        name, _ = await make_reindex_service(at_work).start_reindex(sets)
        build = await at_work.wait_for_state(name, "shadow")
        assert dict(build.engine_calls) == plan["engine_calls"]
        assert {
            engine: number - asked.get(engine, 0)
            for engine, number in at_work.count_engine_calls().items()
            if number > asked.get(engine, 0)
        } == plan["engine_calls"]
        new = {
            topic: number
            for topic, number in (await count_events(at_work)).items()
            if before.get(topic) != number
        }
        assert set(new) == {f"{STAGE_OUTPUTS[stage]}.{name}" for stage in stages}
        assert await compute_checksum(at_work.pool) == live
        shown = "select count(*) from visible where generation = $1"
        assert (
            await at_work.pool.fetchval(shown, name)
            == await at_work.pool.fetchval(shown, "g1")
            == 11
        )


async def test_vectors_of_another_dimension_use_their_own_index(
    database: str, tmp_path: Path
) -> None:
    async with run_pipeline(tmp_path, database, OVERRIDES) as at_work:
        await at_work.push_and_wait({f"doc-{number}": f"{WORDS} {number}" for number in range(400)})
        name, _ = await make_reindex_service(at_work).start_reindex(SETTING_CHANGES["embedder"][0])
        build = await at_work.wait_for_state(name, "shadow")
        # As if the generation had 20,000 vectors more.
        await at_work.pool.execute(
            "insert into corpus_deltas (generation, tenant, cfg, chunks) values ($1, 'elsewhere', 'simple', 20000)",
            name,
        )
        assert await ensure_vector_index(at_work.pool, build.generation)
        await at_work.pool.execute("vacuum analyze chunk_vectors")
        question = (await NullEmbedder(dimension=24).embed_query("heron")).vector
        parameters = [*SearchScope(name, "default").to_parameters(), HalfVector(question), 5]
        plan = await at_work.pool.fetch(
            f"explain {load_query('semantic_near', dimension=24)}", *parameters
        )
        assert any(f"chunk_vectors_near_{name}" in line[0] for line in plan), plan
        async with PgSearch(at_work.pool).open_snapshot(name) as snapshot:
            assert (
                len(await snapshot.search_semantic("default", question, filters=Filters(), k=5))
                == 5
            )
