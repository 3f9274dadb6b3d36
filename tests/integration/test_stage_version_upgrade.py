"""A program with a newer stage answers from the old index and builds a new one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import processors
from anabranch.composition.api import prepare_api
from anabranch.composition.sources import build_reindex_service
from anabranch.config.overrides import Overrides
from anabranch.config.settings import Settings
from anabranch.doctor import stalls
from processors import STAGES
from schemas.generations import UPSTREAM_STAGES
from schemas.questions import SearchRequest
from services.generations.reindex import ReindexService
from services.monitoring.lag_diagnosis import explain_lags
from sql.index.generation_switch import switch_generation
from sql.index.partitions import begin_generation_drop
from sql.operations.integrity import compute_checksum
from sql.operations.monitoring import PgReaderStatus
from streams.codec import Codec
from tests.fakes.null_embedder import NullEmbedder
from tests.support.api_client import LOCAL_CALLER
from tests.support.log_backends import long_on_postgres
from tests.support.pipeline import Pipeline, null_overrides, run_pipeline

TEXTS: dict[str, str | None] = {
    f"doc-{number}": f"Herons and storks, number {number}.\nCranes fly.\nRails swim."
    for number in range(4)
}
LATE_CHANGES: dict[str, str | None] = {
    "late": "Grebes came late.",
    "doc-0": "Herons, said otherwise.",
    "doc-1": None,
}
UpgradeStage = Callable[[str], None]


@pytest.fixture
def upgrade_stage(monkeypatch: pytest.MonkeyPatch) -> UpgradeStage:
    """Turn this process into a program whose stage produces other output."""

    def raised(name: str) -> None:
        newer = tuple(
            replace(stage, version=stage.version + 1) if stage.name == name else stage
            for stage in STAGES
        )
        monkeypatch.setattr(processors, "STAGES", newer)

    return raised


def make_reindex_service(
    at_work: Pipeline, settings: Settings, overrides: Overrides | None = None
) -> ReindexService:
    return build_reindex_service(
        settings,
        at_work.worker.storage,
        at_work.worker.builder.decisions,
        overrides or null_overrides(),
    )


async def fetch_visible_texts(at_work: Pipeline) -> dict[str, str]:
    """Return the live generation's visible texts by external id."""
    rows = await at_work.pool.fetch(
        "select d.external_id, string_agg(p.text, ' ' order by p.ordinal) as text "
        "from live_generation l join visible v on v.generation = l.name "
        "join parent_chunks p on p.generation = v.generation and p.document_id = v.document_id "
        "and p.ord = v.ord "
        "join documents d on d.id = v.document_id group by 1"
    )
    return {row["external_id"]: row["text"].split(",")[0].split(".")[0] for row in rows}


async def promote_generation(at_work: Pipeline, name: str) -> None:
    await switch_generation(at_work.pool, name, at_work.worker.builder.decisions.publish_promoted)


FAILS_DOCUMENT = {stage.name: stage.fails_document for stage in STAGES}
OLD_TEXTS = {f"doc-{number}": "Herons and storks" for number in range(4)}
NEW_TEXTS = {
    "late": "Grebes came late",
    "doc-0": "Herons",
    "doc-2": "Herons and storks",
    "doc-3": "Herons and storks",
}


@pytest.mark.parametrize(
    ("log_kind", "stage"),
    [
        *(
            pytest.param("postgres", stage, marks=[] if stage == "extract" else pytest.mark.long)
            for stage in UPSTREAM_STAGES
        ),
        pytest.param("kafka", "chunk", marks=pytest.mark.kafka),
        pytest.param("kafka", "transcribe", marks=[pytest.mark.kafka, pytest.mark.long]),
    ],
    indirect=["log_kind"],
)
async def test_old_version_index_serves_during_reindex_without_loss(
    stage: str,
    upgrade_stage: UpgradeStage,
    settings: Settings,
    database: str,
    other_database: str,
    tmp_path: Path,
) -> None:
    async with run_pipeline(tmp_path, database, settings=settings) as older:
        assert older.worker.outdated_stages == []
        await older.push_and_wait(TEXTS)
    upgrade_stage(stage)
    async with run_pipeline(tmp_path, database, settings=settings) as newer:
        newer.n_pushed = 10
        assert newer.worker.outdated_stages == [stage]
        assert await fetch_visible_texts(newer) == OLD_TEXTS
        await newer.push(LATE_CHANGES)
        # Documents come, change and go; what needs the other version waits, and only that.
        meanwhile = (
            NEW_TEXTS
            if not FAILS_DOCUMENT[stage]
            else {name: OLD_TEXTS[name] for name in ("doc-0", "doc-2", "doc-3")}
        )
        await newer.wait_for(lambda: _is_visible(newer, meanwhile))
        await newer.wait_for(lambda: _is_stage_paused(newer, stage))
        found = await newer.fetch_lag(stage)
        assert (
            f"{stage} of generation g1 was built by another version" in found["reason"]
            and "anabranch reindex" in found["remedy"]
        )
        findings = await stalls.check_stages(settings)
        assert any(
            "another version" in finding.detail and finding.state == "warn" for finding in findings
        ), findings
    async with run_pipeline(tmp_path, database, settings=settings) as again:
        await again.wait_for(lambda: _is_stage_paused(again, stage))
        assert await fetch_visible_texts(again) == meanwhile
        plan = (await make_reindex_service(again, settings).plan_build([])).to_dict()
        assert plan["first_changed_stage"] == stage and plan["covered_by_retention"]
        name, _ = await make_reindex_service(again, settings).start_reindex([])
        await again.wait_for_state(name, "shadow")
        await again.wait_for(lambda: _has_visible_count(again, name, len(NEW_TEXTS)))
        await promote_generation(again, name)
        assert await fetch_visible_texts(again) == NEW_TEXTS
        await again.wait_for(lambda: _has_one_outcome_each(again, {"late-11", "doc-0-12"}))
        await again.push({"later": "Teals came later."})
        await again.wait_for(lambda: _is_visible(again, NEW_TEXTS | {"later": "Teals came later"}))
        await begin_generation_drop(
            again.pool, "g1", again.worker.builder.decisions.publish_dropped
        )
        await again.wait_for(lambda: _is_only_generation(again, name))
        await again.wait_until_idle()
        assert await PgReaderStatus(again.pool).list_current() == []
        assert await again.pool.fetchval("select count(*) from dead_letters") == 0
        left = await compute_checksum(again.pool)
    if settings.log_kind == "postgres":
        async with run_pipeline(tmp_path / "other", other_database) as fresh:
            await fresh.push_and_wait(
                {
                    "doc-0": LATE_CHANGES["doc-0"],
                    "doc-2": TEXTS["doc-2"],
                    "doc-3": TEXTS["doc-3"],
                    "late": LATE_CHANGES["late"],
                    "later": "Teals came later.",
                }
            )
            assert await compute_checksum(fresh.pool) == left


async def test_original_version_resumes_waiting_events(
    upgrade_stage: UpgradeStage,
    monkeypatch: pytest.MonkeyPatch,
    settings: Settings,
    database: str,
    tmp_path: Path,
) -> None:
    stage = "transcribe"
    async with run_pipeline(tmp_path, database, settings=settings) as older:
        await older.push_and_wait(TEXTS)
    upgrade_stage(stage)
    async with run_pipeline(tmp_path, database, settings=settings) as newer:
        newer.n_pushed = 10
        await newer.push(LATE_CHANGES)
        await newer.wait_for(lambda: _is_stage_paused(newer, stage))
        await newer.wait_for(
            lambda: _is_visible(
                newer, {name: OLD_TEXTS[name] for name in ("doc-0", "doc-2", "doc-3")}
            )
        )
    monkeypatch.setattr(processors, "STAGES", STAGES)
    async with run_pipeline(tmp_path, database, settings=settings) as back:
        await back.wait_for(lambda: _is_visible(back, NEW_TEXTS))
        await back.wait_until_idle()
        assert back.worker.outdated_stages == [] and (await back.fetch_lag(stage))["lag"] == 0
        assert (
            await back.pool.fetchval(
                "select count(distinct headers->>'ce_id') from events where topic = 'ocr_done'"
            )
            == len(TEXTS) + 2
        )


async def test_withdrawal_applies_behind_hundreds_of_waiting_events(
    upgrade_stage: UpgradeStage, settings: Settings, database: str, tmp_path: Path
) -> None:
    async with run_pipeline(tmp_path, database, settings=settings) as older:
        await older.push_and_wait(TEXTS)
    upgrade_stage("transcribe")
    async with run_pipeline(tmp_path, database, settings=settings) as newer:
        newer.n_pushed = 10
        await newer.push(
            {f"new-{number}": f"Number {number}." for number in range(700)} | {"doc-2": None}
        )
        await newer.wait_for(
            lambda: _is_visible(
                newer, {name: text for name, text in OLD_TEXTS.items() if name != "doc-2"}
            )
        )


@long_on_postgres
async def test_old_version_worker_ingests_alongside_newer_worker(
    upgrade_stage: UpgradeStage, settings: Settings, database: str, tmp_path: Path
) -> None:
    async with run_pipeline(tmp_path, database, settings=settings) as older:
        await older.push_and_wait(TEXTS)
        upgrade_stage("chunk")
        async with run_pipeline(tmp_path, database, settings=settings) as newer:
            newer.n_pushed = 10
            assert newer.worker.outdated_stages == ["chunk"]
            await newer.push(LATE_CHANGES)
            await newer.wait_for(lambda: _is_visible(newer, NEW_TEXTS))


async def test_build_of_another_version_waits_for_that_version(
    upgrade_stage: UpgradeStage, settings: Settings, database: str, tmp_path: Path
) -> None:
    async with run_pipeline(tmp_path, database, settings=settings) as older:
        await older.push_and_wait(TEXTS)
        name, _ = await make_reindex_service(older, settings).start_reindex(
            ["chunk.child_tokens=100"], events_per_second=0.001
        )
    upgrade_stage("extract")
    async with run_pipeline(tmp_path, database, settings=settings) as newer:
        newer.n_pushed = 10
        await newer.push_and_wait_until_visible({"late": "Grebes came late."})
        await newer.wait_for(
            lambda: _are_consumers_paused(
                newer, {"anabranch.extract.g1", f"anabranch.extract.{name}"}
            )
        )
        build_finding = {finding.check: finding for finding in await stalls.check_stages(settings)}[
            f"reader: anabranch.extract.{name}"
        ]
        assert (
            "another version" in build_finding.detail
            and f"anabranch generations drop {name}" in build_finding.remedy
        )
        await newer.wait_for_state(name, "building")
        await begin_generation_drop(
            newer.pool, name, newer.worker.builder.decisions.publish_dropped
        )
        await newer.wait_for(lambda: _are_consumers_paused(newer, {"anabranch.extract.g1"}))


class ChangedEmbedder(NullEmbedder):
    """The same model in a newer program."""

    def __init__(self) -> None:
        super().__init__(dimension=8)
        self.fingerprint = "of a newer program"


async def test_queries_skip_outdated_vectors_and_report_it(
    settings: Settings, database: str, tmp_path: Path
) -> None:
    async with run_pipeline(tmp_path, database, settings=settings) as older:
        await older.push_and_wait(TEXTS)
    newer_engines = replace(null_overrides(), embedder=ChangedEmbedder())
    async with (
        run_pipeline(tmp_path, database, newer_engines, settings) as newer,
        prepare_api(settings, database, overrides=newer_engines) as services,
    ):
        assert newer.worker.outdated_stages == ["embed"]
        answer = await services.search(LOCAL_CALLER, SearchRequest(query="Which storks?", k=2))
        assert answer.generation == "g1" and "storks" in answer.results[0].snippet
        assert (
            answer.trace.channels_failed["semantic"].startswith(
                "GENERATION_OUTDATED: embed of generation g1"
            )
            and answer.trace.reranker is None
        )
        name, _ = await make_reindex_service(newer, settings, newer_engines).start_reindex([])
        await newer.wait_for_state(name, "shadow")
        await promote_generation(newer, name)
        answer = await services.search(LOCAL_CALLER, SearchRequest(query="Which storks?", k=2))
        assert (
            answer.generation == name
            and not answer.trace.channels_failed
            and answer.trace.channels["semantic"].returned
        )


async def _is_visible(at_work: Pipeline, expected: dict[str, str]) -> bool:
    return await fetch_visible_texts(at_work) == expected


async def _is_stage_paused(at_work: Pipeline, stage: str) -> bool:
    lines, _ = await explain_lags(at_work.worker.storage)
    return [one["stage"] for one in lines if one["paused"]] == [stage]


async def _has_one_outcome_each(at_work: Pipeline, events: set[str]) -> bool:
    """Return whether each event has exactly one outcome."""
    outcomes = [
        one.data
        for one in [
            await Codec().decode(stored)
            async for stored in at_work.worker.storage.log.read("outcomes")
        ]
        if one.data.event_id in events
    ]
    kinds = {(data.event_id, data.name) for data in outcomes}
    return kinds == {(event, "document.indexed") for event in events}


async def _are_consumers_paused(at_work: Pipeline, readers: set[str]) -> bool:
    return {pause.reader for pause in await PgReaderStatus(at_work.pool).list_current()} == readers


async def _has_visible_count(at_work: Pipeline, generation: str, documents: int) -> bool:
    query = (
        "select count(*) from visible v join documents d on d.id = v.document_id "
        "where generation = $1 and d.withdrawn is null"
    )
    return bool(await at_work.pool.fetchval(query, generation) == documents)


async def _is_only_generation(at_work: Pipeline, generation: str) -> bool:
    return bool(
        {reader.generation.name for reader, _ in at_work.worker.consumers.assignment_tasks.values()}
        == {generation}
    )
