"""Build an index with other settings: only stages after the change run, at planned cost."""

from __future__ import annotations

from pathlib import Path

import pytest
from pgvector import HalfVector

from anabranch.config.settings import Settings
from processors import TOPICS
from schemas.questions import Filters
from schemas.topics import count_partitions
from services.generations.reindex_plan import OUTPUT_TOPICS
from sql.database import load_query
from sql.index.generations import PgGenerations
from sql.index.search import PgSearch, ensure_vector_index
from sql.index.snapshot import SearchScope
from sql.operations.integrity import compute_checksum
from tests.fakes.null_embedder import NullEmbedder
from tests.support.pipeline import Pipeline, run_pipeline
from tests.support.reindex_cases import (
    OVERRIDES,
    SETTING_CHANGES,
    TEXTS,
    WORDS,
    make_reindex_service,
)


async def count_events(at_work: Pipeline) -> dict[str, int]:
    """Count the events of each topic over all generations."""
    generations = await PgGenerations(at_work.pool).fetch_undropped()
    named = {topic for generation in generations for topic in generation.topics.values()}
    return {
        topic: await at_work.worker.storage.log.count_records(topic)
        for topic in {*count_partitions(TOPICS, 1), *named} - {"control"}
    }


POSTGRES_CASES = [(change, "postgres") for change in SETTING_CHANGES]
KAFKA_CASES = [
    pytest.param(change, "kafka", marks=[pytest.mark.kafka, pytest.mark.long])
    for change in ("extractor", "parser")
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
        before, engine_calls = await count_events(at_work), at_work.count_engine_calls()
        live = await compute_checksum(at_work.pool)
        plan = (await make_reindex_service(at_work).plan_build(sets)).to_dict()
        assert (plan["first_changed_stage"], plan["stages"], plan["covered_by_retention"]) == (
            stages[0],
            stages,
            True,
        )
        assert (
            await count_events(at_work) == before and at_work.count_engine_calls() == engine_calls
        )
        name, _ = await make_reindex_service(at_work).start_reindex(sets)
        build = await at_work.wait_for_state(name, "shadow")
        assert dict(build.engine_calls) == plan["engine_calls"]
        assert {
            engine: number - engine_calls.get(engine, 0)
            for engine, number in at_work.count_engine_calls().items()
            if number > engine_calls.get(engine, 0)
        } == plan["engine_calls"]
        new = {
            topic: number
            for topic, number in (await count_events(at_work)).items()
            if before.get(topic) != number
        }
        assert set(new) == {f"{OUTPUT_TOPICS[stage]}.{name}" for stage in stages}
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
            "insert into corpus_deltas (generation, tenant, cfg, chunks) "
            "values ($1, 'elsewhere', 'simple', 20000)",
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
