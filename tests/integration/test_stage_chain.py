"""Chains in a real worker: small documents are committed at once, others take the ordinary path."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from anabranch.config.overrides import Overrides
from engines.extract.null import NullExtractor
from schemas.errors import EngineUnavailable
from schemas.generations import EmbedConfig, ExtractConfig, IndexConfig
from schemas.ports.engines import TextEmbedding
from services.generations.stage_assignments import assign_stages
from streams import stage_chain
from tests.fakes.null_embedder import NullEmbedder
from tests.support.pipeline import Pipeline, run_pipeline

STAGES = ["chunk", "embed", "extract", "graph", "index", "transcribe"]
TRANSACTIONS = """
    select count(distinct xact) from events
    where topic in ('accepted', 'ocr_done', 'chunked', 'embedded', 'entities', 'outcomes')
"""


class FailingOnceEmbedder(NullEmbedder):
    def __init__(self) -> None:
        super().__init__(dimension=8)
        self.n_calls = 0

    async def embed(self, texts: Sequence[str]) -> list[TextEmbedding]:
        self.n_calls += 1
        if self.n_calls == 1:
            raise EngineUnavailable("The embedder is starting.")
        return await super().embed(texts)


async def wait_for_tables(pipeline: Pipeline) -> None:
    """Wait for the first generation; what arrives before takes the ordinary path."""

    async def exist() -> bool:
        return pipeline.worker.consumers.has_generations

    await pipeline.wait_for(exist)


async def list_stages(pipeline: Pipeline) -> list[str]:
    rows = await pipeline.pool.fetch("select stage, state from job_stages order by stage")
    assert {row["state"] for row in rows} == {"done"}
    return [row["stage"] for row in rows]


async def fetch_visible_text(pipeline: Pipeline, external_id: str) -> str:
    text: str = await pipeline.pool.fetchval(
        "select t.markdown from visible v join documents d on d.id = v.document_id "
        "join revision_texts t using (generation, document_id, ord) where d.external_id = $1",
        external_id,
    )
    return text


async def test_small_document_is_committed_in_one_transaction(
    database: str, tmp_path: Path
) -> None:
    async with run_pipeline(tmp_path, database) as pipeline:
        await wait_for_tables(pipeline)
        await pipeline.push_and_wait({"a": "The toll is four pounds."})
        assert await pipeline.pool.fetchval(TRANSACTIONS) == 1
        assert await list_stages(pipeline) == STAGES
        assert await fetch_visible_text(pipeline, "a") == "The toll is four pounds."
        # Claims behind ingress are not needed: no group reads these events.
        assert (
            await pipeline.pool.fetchval("select count(*) from inbox where generation = 'g1'") == 0
        )


async def test_large_document_takes_ordinary_path(database: str, tmp_path: Path) -> None:
    text = "The toll is four pounds. " * (stage_chain.MAX_DOCUMENT_BYTES // 24)
    async with run_pipeline(tmp_path, database) as pipeline:
        await pipeline.push_and_wait({"a": text})
        assert await pipeline.pool.fetchval(TRANSACTIONS) > 4
        assert await list_stages(pipeline) == STAGES


async def test_document_waits_for_engine_on_ordinary_path(database: str, tmp_path: Path) -> None:
    overrides = Overrides(embedder=FailingOnceEmbedder(), extractor=NullExtractor())
    async with run_pipeline(tmp_path, database, overrides) as pipeline:
        await wait_for_tables(pipeline)
        await pipeline.push_and_wait({"a": "The toll is four pounds."})
        assert await pipeline.pool.fetchval(TRANSACTIONS) > 4
        assert await fetch_visible_text(pipeline, "a") == "The toll is four pounds."


@pytest.mark.parametrize(
    "config",
    [
        IndexConfig(extract=ExtractConfig(engine="openai")),
        IndexConfig(embed=EmbedConfig(engine="openai")),
    ],
)
async def test_documents_do_not_wait_for_model_servers_in_a_chain(
    config: IndexConfig, database: str, tmp_path: Path
) -> None:
    async with run_pipeline(tmp_path, database) as pipeline:
        await pipeline.push_and_wait({"a": "The toll is four pounds."})
        supervisor, generation = pipeline.worker.consumers, pipeline.worker.generation
        assignments = assign_stages([generation], supervisor.stages)
        runners = supervisor.list_runners()
        ports = runners["receive", None].ports
        assert await supervisor._build_chain(generation, assignments, ports) is not None
        slow = generation.model_copy(update={"config": config})
        assert await supervisor._build_chain(slow, assignments, ports) is None


async def test_tables_that_reject_a_chain_leave_it_to_ordinary_path(
    database: str, tmp_path: Path
) -> None:
    async with run_pipeline(tmp_path, database) as pipeline:
        await wait_for_tables(pipeline)
        # Only the first attempt of each document fails: the chain's.
        await pipeline.pool.execute("""
            create sequence refusals;
            create function refuse_first() returns trigger language plpgsql as $$
            begin
              if nextval('anabranch.refusals') = 1 then raise exception 'refused'; end if;
              return new;
            end $$;
            create trigger refuse_first before insert on visible
            for each row execute function refuse_first();
        """)
        await pipeline.push_and_wait({"b": "The toll is four pounds."})
        assert await fetch_visible_text(pipeline, "b") == "The toll is four pounds."
        assert await pipeline.pool.fetchval("select last_value from refusals") == 2
        assert await pipeline.pool.fetchval("select count(*) from dead_letters") == 0
