"""An index with another configuration, built beside the live one: exactly the stages downstream of the change run, and they cost what the plan said."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

import pytest
from pgvector import HalfVector

from anabranch.approvals import approve, closed_settings
from anabranch.composition.overrides import Overrides
from anabranch.desk.rebuilding import Reindexing
from anabranch.settings import Settings
from anabranch.settings_loading import load_settings
from engines.chunk import chunker_for
from engines.embed.null import NullEmbedder
from schemas.generations import IndexConfig
from schemas.ids import fingerprint
from schemas.ports.engines import File, ParsePlan
from schemas.questions import Filters
from schemas.values import Extraction, Mention, ParentChunk, Transcript
from sql.checksum import checksum
from sql.generations import PgGenerations
from sql.scope import Scope
from sql.search import PgSearch
from sql.statements import statement
from sql.vector_index import ensure_vector_index
from streams.topics import partition_counts
from tests.pipeline import Pipeline, pipeline
from tests.property.world import LineParser

WORDS = "heron stork crane rail coot grebe swan teal duck goose"
TEXTS: dict[str, str | None] = {f"doc-{number}": f"{WORDS} {number}\nNumber {number} flies.\n{WORDS}" for number in range(12)}
ONLY = "http://127.0.0.1:1"
CHANGES = {
    "parser": (["ocr.base_url=" + ONLY, "ocr.model=shouting"], ["transcribe", "chunk", "extract", "embed"]),
    "chunker": (["chunk.strategy=fixed_size", "chunk.child_tokens=32"], ["chunk", "extract", "embed"]),
    "extractor": (["extract.base_url=" + ONLY, "extract.model=all", "extract.engine=openai"], ["extract"]),
    "embedder": (["embed.base_url=" + ONLY, "embed.model=wide", "embed.dimension=24"], ["embed"]),
}

APPROVED = [one for sets, _ in CHANGES.values() for one in closed_settings(sets)]


class ShoutingParser(LineParser):
    fingerprint = "shouting"

    def assemble(self, file: File, plan: ParsePlan, parts: Sequence[bytes]) -> Transcript:
        transcript = super().assemble(file, plan, parts)
        return transcript.model_copy(update={"markdown": transcript.markdown.upper()})


class FirstWords:
    """The first word of each chunk is a name."""

    def __init__(self, model: str) -> None:
        self.fingerprint = fingerprint("first words", model)

    async def extract(self, parents: Sequence[ParentChunk], language: str | None) -> Extraction:
        found = [(child.id, child.text.split()[0], child.char_start) for parent in parents for child in parent.children if child.text.split()]
        return Extraction(mentions=[_mention(*one) for one in found])


def _mention(chunk: UUID, word: str, start: int) -> Mention:
    return Mention(chunk_id=chunk, type="WORD", key=word.casefold(), name=word, char_start=start, char_end=start + len(word))


def engines_of(config: IndexConfig) -> Overrides:
    return Overrides(
        parser=ShoutingParser() if config.ocr.model else LineParser(),
        chunker=chunker_for(config.chunk),
        extractor=FirstWords(config.extract.model),
        embedder=NullEmbedder(dimension=config.embed.dimension if config.embed.engine == "openai" else 8),
    )


OVERRIDES = Overrides(for_config=engines_of)


OUTPUTS = {"transcribe": "ocr_done", "chunk": "chunked", "extract": "entities", "embed": "embedded"}


def reindexing(at_work: Pipeline) -> Reindexing:
    approve(at_work.worker.hosting.settings.data_dir, "settings", APPROVED)
    return Reindexing(at_work.worker.hosting.settings, at_work.worker.storage, at_work.worker.builder.decisions, OVERRIDES)


async def facts(at_work: Pipeline) -> dict[str, int]:
    """Of every generation, how many are in each topic."""
    generations = await PgGenerations(at_work.pool).undropped()
    named = {topic for generation in generations for topic in generation.topics.values()}
    return {topic: await at_work.worker.storage.records(topic) for topic in {*partition_counts(1), *named} - {"control"}}


@pytest.fixture
def settings(tmp_path: Path, log_sets: list[str]) -> Settings:
    return load_settings(data_dir=tmp_path, sets=log_sets)


ON_THE_TABLE = [(change, "postgres") for change in CHANGES]
ON_KAFKA = [pytest.param(change, "kafka", marks=pytest.mark.kafka) for change in ("parser", "extractor")]


@pytest.mark.parametrize(("change", "log_kind"), [*ON_THE_TABLE, *ON_KAFKA], indirect=["log_kind"])
async def test_what_changes_alone_runs_with_all_that_follows_and_costs_what_the_plan_said(change: str, settings: Settings, database: str) -> None:
    sets, stages = CHANGES[change]
    async with pipeline(settings.data_dir, database, OVERRIDES, settings) as at_work:
        await at_work.fill(TEXTS)
        await at_work.fill({"doc-0": f"Changed.\n{WORDS}", "doc-1": None, "doc-2": TEXTS["doc-2"]})
        before, asked = await facts(at_work), at_work.engine_calls()
        live = await checksum(at_work.pool)
        plan = (await reindexing(at_work).plan(sets)).body()
        assert (plan["first_changed_stage"], plan["stages"], plan["covered_by_retention"]) == (stages[0], stages, True)
        assert await facts(at_work) == before and at_work.engine_calls() == asked
        name, _ = await reindexing(at_work).start(sets)
        build = await at_work.reaches(name, "shadow")
        assert dict(build.engine_calls) == plan["engine_calls"]
        assert {engine: number - asked.get(engine, 0) for engine, number in at_work.engine_calls().items() if number > asked.get(engine, 0)} == plan[
            "engine_calls"
        ]
        new = {topic: number for topic, number in (await facts(at_work)).items() if before.get(topic) != number}
        assert set(new) == {f"{OUTPUTS[stage]}.{name}" for stage in stages}
        assert await checksum(at_work.pool) == live
        shown = "select count(*) from visible where generation = $1"
        assert await at_work.pool.fetchval(shown, name) == await at_work.pool.fetchval(shown, "g1") == 11


async def test_vectors_of_another_dimension_are_found_through_an_index_of_their_own(database: str, tmp_path: Path) -> None:
    async with pipeline(tmp_path, database, OVERRIDES) as at_work:
        await at_work.fill({f"doc-{number}": f"{WORDS} {number}" for number in range(400)})
        name, _ = await reindexing(at_work).start(CHANGES["embedder"][0])
        build = await at_work.reaches(name, "shadow")
        # As if the generation had 20,000 vectors more.
        await at_work.pool.execute("insert into corpus_deltas (generation, tenant, cfg, chunks) values ($1, 'elsewhere', 'simple', 20000)", name)
        assert await ensure_vector_index(at_work.pool, build.generation)
        await at_work.pool.execute("vacuum analyze chunk_vectors")
        question = (await NullEmbedder(dimension=24).embed_query("heron")).vector
        parameters = [*Scope(name, "default").parameters(), HalfVector(question), 5]
        plan = await at_work.pool.fetch(f"explain {statement('semantic_near', dimension=24)}", *parameters)
        assert any(f"chunk_vectors_near_{name}" in line[0] for line in plan), plan
        async with PgSearch(at_work.pool).snapshot(name) as snapshot:
            assert len(await snapshot.semantic("default", question, filters=Filters(), k=5)) == 5
