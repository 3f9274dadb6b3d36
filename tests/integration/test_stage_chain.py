"""Chains in a real worker: small documents are committed at once, others take the ordinary path."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from anabranch.config.loader import load_settings
from anabranch.config.overrides import Overrides
from benchmarks.null_engines import NullExtractor
from processors import STAGES
from schemas.errors import DatabaseUnavailable, EngineUnavailable
from schemas.generations import EmbedConfig, ExtractConfig, IndexConfig
from schemas.ports.engines import TextEmbedding
from services.generations.stage_assignments import assign_stages
from sql.inbox.ledger import PgLedger
from streams import stage_chain
from streams.runner import StageRunner, WorkItem
from tests.fakes.null_embedder import NullEmbedder
from tests.support.log_backends import on_both_logs, on_kafka
from tests.support.pipeline import Pipeline, run_pipeline

HAS_REACTION = {
    stage.name: stage.react is not None for stage in STAGES if not stage.serves_all_generations
}
TRANSACTIONS = """
    select count(distinct xact) from events
    where topic in ('accepted', 'ocr_done', 'chunked', 'embedded', 'entities', 'outcomes')
"""

CLAIMS = "select count(*) from inbox where generation = 'g1'"
CHAINED = "select count(*) from inbox where chained_in = 'g1'"
OWING = """
    select count(*) from inbox
    where stage = 'receive' and (owed_records is not null or not is_reaction_done)
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


@asynccontextmanager
async def run_on_log(
    log_settings: list[str], database: str, folder: Path
) -> AsyncIterator[Pipeline]:
    settings = load_settings(data_dir=folder, sets=log_settings)
    async with run_pipeline(folder, database, settings=settings) as pipeline:
        await wait_for_tables(pipeline)
        yield pipeline


async def list_stages(pipeline: Pipeline) -> list[str]:
    rows = await pipeline.pool.fetch("select stage, state from job_stages order by stage")
    assert {row["state"] for row in rows if HAS_REACTION[row["stage"]]} == {"done"}
    return [row["stage"] for row in rows]


async def fetch_visible_text(pipeline: Pipeline, external_id: str) -> str:
    text: str = await pipeline.pool.fetchval(
        "select t.markdown from visible v join documents d on d.id = v.document_id "
        "join revision_texts t using (generation, document_id, ord) where d.external_id = $1",
        external_id,
    )
    return text


async def count_outcomes(pipeline: Pipeline) -> int:
    return len([stored async for stored in pipeline.worker.storage.log.read("outcomes")])


@on_both_logs
async def test_small_document_is_committed_in_one_transaction(
    log_kind: str, log_settings: list[str], database: str, tmp_path: Path
) -> None:
    async with run_on_log(log_settings, database, tmp_path) as pipeline:
        await pipeline.push_and_wait({"a": "The toll is four pounds."})
        if log_kind == "postgres":
            assert await pipeline.pool.fetchval(TRANSACTIONS) == 1
        assert await list_stages(pipeline) == sorted(HAS_REACTION)
        assert await fetch_visible_text(pipeline, "a") == "The toll is four pounds."
        await pipeline.wait_until_idle()
        assert await count_outcomes(pipeline) == 1
        # Claims behind ingress are not needed: no group processes these events.
        assert await pipeline.pool.fetchval(CLAIMS) == 0
        # Every further revision too: the tables show the one that was admitted before.
        await pipeline.push_and_wait({"a": "The toll is five pounds."})
        await pipeline.wait_until_idle()
        assert await pipeline.pool.fetchval(CLAIMS) == 0
        assert await count_outcomes(pipeline) == 2


@on_both_logs
async def test_chain_does_not_overtake_an_admitted_event(
    log_kind: str, log_settings: list[str], database: str, tmp_path: Path
) -> None:
    async with run_on_log(log_settings, database, tmp_path) as pipeline:
        await pipeline.push_and_wait({"a": "The toll is four pounds."})
        # As if another worker had admitted an event that no stage has read yet.
        await pipeline.pool.execute("update document_owners set admitted_id = gen_random_uuid()")
        await pipeline.push_and_wait({"a": "The toll is five pounds."})
        await pipeline.wait_until_idle()
        assert await fetch_visible_text(pipeline, "a") == "The toll is five pounds."
        assert await pipeline.pool.fetchval(CHAINED) == 1
        await pipeline.push_and_wait({"a": "The toll is six pounds."})
        assert await pipeline.pool.fetchval(CHAINED) == 2


@on_kafka
async def test_owed_outcome_is_published_by_the_next_worker(
    log_kind: str,
    log_settings: list[str],
    database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    died = asyncio.Event()
    finish = StageRunner.finish

    async def die_at_ingress(runner: StageRunner, items: Sequence[WorkItem]) -> None:
        if runner.stage.name == "receive":
            died.set()
            await asyncio.Event().wait()
        await finish(runner, items)

    with monkeypatch.context() as patches:
        patches.setattr(StageRunner, "finish", die_at_ingress)
        async with run_on_log(log_settings, database, tmp_path) as pipeline:
            await pipeline.push({"a": "The toll is four pounds."})
            async with asyncio.timeout(60):
                await died.wait()
            assert await fetch_visible_text(pipeline, "a") == "The toll is four pounds."
            assert await count_outcomes(pipeline) == 0
    async with run_on_log(log_settings, database, tmp_path) as pipeline:
        await pipeline.wait_until_idle()
        assert await count_outcomes(pipeline) == 1
        assert await pipeline.pool.fetchval(OWING) == 0
        assert await pipeline.pool.fetchval(CLAIMS) == 0


@pytest.mark.parametrize("admits_next", [False, True])
@on_both_logs
async def test_outcome_follows_a_commit_without_an_answer(
    log_kind: str,
    log_settings: list[str],
    database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    admits_next: bool,
) -> None:
    commit, lost = PgLedger.commit_chains, []

    async def commit_and_lose_answer(ledger: PgLedger, *given: Any) -> Any:
        committed = await commit(ledger, *given)
        if not lost:
            lost.append(committed)
            if admits_next:  # as ingress does with the next event of the document
                await ledger._pool.execute(
                    "update document_owners set admitted_id = gen_random_uuid()"
                )
            raise DatabaseUnavailable("The connection was lost.")
        return committed

    monkeypatch.setattr(PgLedger, "commit_chains", commit_and_lose_answer)
    async with run_on_log(log_settings, database, tmp_path) as pipeline:
        await pipeline.push_and_wait({"a": "The toll is four pounds."})
        await pipeline.wait_until_idle()
        assert lost
        assert await fetch_visible_text(pipeline, "a") == "The toll is four pounds."
        assert await count_outcomes(pipeline) == 1
        assert await pipeline.pool.fetchval(OWING) == 0
        assert await pipeline.pool.fetchval(CLAIMS) == 0


async def test_large_document_takes_ordinary_path(database: str, tmp_path: Path) -> None:
    text = "The toll is four pounds. " * (stage_chain.MAX_DOCUMENT_BYTES // 24)
    async with run_pipeline(tmp_path, database) as pipeline:
        await pipeline.push_and_wait({"a": text})
        assert await pipeline.pool.fetchval(TRANSACTIONS) > 4
        assert await list_stages(pipeline) == sorted(HAS_REACTION)


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
