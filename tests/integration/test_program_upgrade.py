"""A program whose stage does otherwise than the one that made the index: it answers, leaves what is new to whoever can, and makes another index."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import processors
from anabranch.background.stuck import explained_lags
from anabranch.composition.api import prepare_api
from anabranch.composition.overrides import Overrides
from anabranch.desk.rebuilding import Reindexing
from anabranch.doctor import waiting
from anabranch.settings import Settings
from engines.embed.null import NullEmbedder
from processors import STAGES
from schemas.errors import PermanentError
from schemas.generations import CHAIN
from schemas.questions import SearchRequest
from sql.checksum import checksum
from sql.dropping import give_up
from sql.pauses import PgPauses
from sql.switching import roll_back, switch
from streams.codec import Codec
from tests.both_logs import on_both_logs
from tests.callers import LOCAL
from tests.pipeline import Pipeline, null_overrides, pipeline, settings

__all__ = ["settings"]

TEXTS: dict[str, str | None] = {f"doc-{number}": f"Herons and storks, number {number}.\nCranes fly.\nRails swim." for number in range(4)}
LATE: dict[str, str | None] = {"late": "Grebes came late.", "doc-0": "Herons, said otherwise.", "doc-1": None}
Upgrade = Callable[[str], None]


@pytest.fixture
def upgrade(monkeypatch: pytest.MonkeyPatch) -> Upgrade:
    """From here on this process is a program whose stage of that name makes other output."""

    def raised(name: str) -> None:
        newer = tuple(replace(stage, version=stage.version + 1) if stage.name == name else stage for stage in STAGES)
        monkeypatch.setattr(processors, "STAGES", newer)

    return raised


def reindexing(at_work: Pipeline, settings: Settings, overrides: Overrides | None = None) -> Reindexing:
    return Reindexing(settings, at_work.worker.storage, at_work.worker.builder.decisions, overrides or null_overrides())


async def shown(at_work: Pipeline) -> dict[str, str]:
    """External id → text, of what the live generation shows."""
    rows = await at_work.pool.fetch(
        "select d.external_id, string_agg(p.text, ' ' order by p.ordinal) as text from live_generation l join visible v on v.generation = l.name "
        "join parent_chunks p on p.generation = v.generation and p.document_id = v.document_id and p.ord = v.ord "
        "join documents d on d.id = v.document_id group by 1"
    )
    return {row["external_id"]: row["text"].split(",")[0].split(".")[0] for row in rows}


async def promote(at_work: Pipeline, name: str) -> None:
    await switch(at_work.pool, name, at_work.worker.builder.decisions.promoted)


OLD = {f"doc-{number}": "Herons and storks" for number in range(4)}
NEW = {"late": "Grebes came late", "doc-0": "Herons", "doc-2": "Herons and storks", "doc-3": "Herons and storks"}


@pytest.mark.parametrize(
    ("log_kind", "stage"),
    [*(("postgres", stage) for stage in CHAIN), *(pytest.param("kafka", stage, marks=pytest.mark.kafka) for stage in ("transcribe", "chunk"))],
    indirect=["log_kind"],
)
async def test_an_index_of_another_version_answers_while_a_new_one_is_made_and_nothing_is_lost(
    stage: str, upgrade: Upgrade, settings: Settings, database: str, other_database: str, tmp_path: Path
) -> None:
    async with pipeline(tmp_path, database, settings=settings) as older:
        assert older.worker.outdated == []
        await older.fill(TEXTS)
    upgrade(stage)
    async with pipeline(tmp_path, database, settings=settings) as newer:
        newer.number = 10
        assert newer.worker.outdated == [stage]
        assert await shown(newer) == OLD
        await newer.push(LATE)
        # Documents come, change and go; what needs the other version waits, and only that.
        meanwhile = NEW if stage == "extract" else {name: OLD[name] for name in ("doc-0", "doc-2", "doc-3")}
        await newer.until(lambda: _shows(newer, meanwhile))
        await newer.until(lambda: _paused(newer, stage))
        found = await newer.line(stage)
        assert f"{stage} of generation g1 is the work of another version" in found["why"] and "anabranch reindex" in found["remedy"]
        findings = await waiting.stages(settings)
        assert any("another version" in finding.detail and finding.status == "warn" for finding in findings), findings
    async with pipeline(tmp_path, database, settings=settings) as again:
        await again.until(lambda: _paused(again, stage))
        assert await shown(again) == meanwhile
        plan = (await reindexing(again, settings).plan([])).body()
        assert plan["first_changed_stage"] == stage and plan["covered_by_retention"]
        name, _ = await reindexing(again, settings).start([])
        await again.reaches(name, "shadow")
        await again.until(lambda: _settled(again, name, len(NEW)))
        await promote(again, name)
        assert await shown(again) == NEW
        await again.until(lambda: _told(again, {"late-11", "doc-0-12"}))
        await again.push({"later": "Teals came later."})
        await again.until(lambda: _shows(again, NEW | {"later": "Teals came later"}))
        await give_up(again.pool, "g1", again.worker.builder.decisions.dropped)
        await again.until(lambda: _alone(again, name))
        await again.quiet()
        assert await PgPauses(again.pool).all() == []
        assert await again.pool.fetchval("select count(*) from dead_letters") == 0
        left = await checksum(again.pool)
    if settings.log_kind == "postgres":
        async with pipeline(tmp_path / "other", other_database) as fresh:
            await fresh.fill({"doc-0": LATE["doc-0"], "doc-2": TEXTS["doc-2"], "doc-3": TEXTS["doc-3"], "late": LATE["late"], "later": "Teals came later."})
            assert await checksum(fresh.pool) == left


@pytest.mark.parametrize("stage", ["transcribe", "chunk"])
async def test_the_version_that_made_the_index_goes_on_with_what_waited(
    stage: str, upgrade: Upgrade, monkeypatch: pytest.MonkeyPatch, settings: Settings, database: str, tmp_path: Path
) -> None:
    async with pipeline(tmp_path, database, settings=settings) as older:
        await older.fill(TEXTS)
    upgrade(stage)
    async with pipeline(tmp_path, database, settings=settings) as newer:
        newer.number = 10
        await newer.push(LATE)
        await newer.until(lambda: _paused(newer, stage))
        await newer.until(lambda: _shows(newer, {name: OLD[name] for name in ("doc-0", "doc-2", "doc-3")}))
    monkeypatch.setattr(processors, "STAGES", STAGES)
    async with pipeline(tmp_path, database, settings=settings) as back:
        await back.until(lambda: _shows(back, NEW))
        await back.quiet()
        assert back.worker.outdated == [] and (await back.line(stage))["lag"] == 0
        assert await back.pool.fetchval("select count(distinct headers->>'ce_id') from events where topic = 'ocr_done'") == len(TEXTS) + 2


async def test_more_than_a_partition_holds_may_wait_for_a_text_and_a_withdrawal_behind_it_counts(
    upgrade: Upgrade, settings: Settings, database: str, tmp_path: Path
) -> None:
    async with pipeline(tmp_path, database, settings=settings) as older:
        await older.fill(TEXTS)
    upgrade("transcribe")
    async with pipeline(tmp_path, database, settings=settings) as newer:
        newer.number = 10
        await newer.push({f"new-{number}": f"Number {number}." for number in range(700)} | {"doc-2": None})
        await newer.until(lambda: _shows(newer, {name: text for name, text in OLD.items() if name != "doc-2"}))


@on_both_logs
async def test_a_worker_of_the_version_that_made_the_index_takes_in_what_comes_beside_a_newer_one(
    upgrade: Upgrade, settings: Settings, database: str, tmp_path: Path
) -> None:
    async with pipeline(tmp_path, database, settings=settings) as older:
        await older.fill(TEXTS)
        upgrade("chunk")
        async with pipeline(tmp_path, database, settings=settings) as newer:
            newer.number = 10
            assert newer.worker.outdated == ["chunk"]
            await newer.push(LATE)
            await newer.until(lambda: _shows(newer, NEW))


async def test_the_older_index_does_not_come_back_over_what_it_never_took_in(upgrade: Upgrade, settings: Settings, database: str, tmp_path: Path) -> None:
    async with pipeline(tmp_path, database, settings=settings) as older:
        await older.fill(TEXTS)
    upgrade("chunk")
    async with pipeline(tmp_path, database, settings=settings) as newer:
        newer.number = 10
        name, _ = await reindexing(newer, settings).start([])
        await newer.reaches(name, "shadow")
        await promote(newer, name)
        await newer.push({"late": "Grebes came late."})
        await newer.until(lambda: _shows(newer, OLD | {"late": "Grebes came late"}))
        with pytest.raises(PermanentError) as refused:
            await roll_back(newer.pool, newer.worker.builder.decisions.promoted)
        assert refused.value.code == "GENERATION_BEHIND"
        assert await shown(newer) == OLD | {"late": "Grebes came late"}


async def test_an_index_that_another_version_began_waits_for_it_and_takes_nothing_with_it(
    upgrade: Upgrade, settings: Settings, database: str, tmp_path: Path
) -> None:
    async with pipeline(tmp_path, database, settings=settings) as older:
        await older.fill(TEXTS)
        name, _ = await reindexing(older, settings).start(["chunk.child_tokens=100"], events_per_second=0.001)
    upgrade("extract")
    async with pipeline(tmp_path, database, settings=settings) as newer:
        newer.number = 10
        await newer.fill_live({"late": "Grebes came late."})
        await newer.until(lambda: _standing(newer, {"anabranch.extract.g1", f"anabranch.extract.{name}"}))
        told = {finding.name: finding for finding in await waiting.stages(settings)}[f"reader: anabranch.extract.{name}"]
        assert "another version" in told.detail and f"anabranch generations drop {name}" in told.fix
        await newer.reaches(name, "building")
        await give_up(newer.pool, name, newer.worker.builder.decisions.dropped)
        await newer.until(lambda: _standing(newer, {"anabranch.extract.g1"}))


class OtherVectors(NullEmbedder):
    """The same model by a newer program."""

    def __init__(self) -> None:
        super().__init__(dimension=8)
        self.fingerprint = "of a newer program"


async def test_where_vectors_say_nothing_any_more_questions_do_without_and_say_so(settings: Settings, database: str, tmp_path: Path) -> None:
    async with pipeline(tmp_path, database, settings=settings) as older:
        await older.fill(TEXTS)
    newer_engines = replace(null_overrides(), embedder=OtherVectors())
    async with (
        pipeline(tmp_path, database, newer_engines, settings) as newer,
        prepare_api(settings, database, overrides=newer_engines) as services,
    ):
        assert newer.worker.outdated == ["embed"]
        answer = await services.search(LOCAL, SearchRequest(query="Which storks?", k=2))
        assert answer.generation == "g1" and "storks" in answer.results[0].snippet
        assert answer.trace.channels_failed["semantic"].startswith("GENERATION_OUTDATED: embed of generation g1") and answer.trace.reranker is None
        name, _ = await reindexing(newer, settings, newer_engines).start([])
        await newer.reaches(name, "shadow")
        await promote(newer, name)
        answer = await services.search(LOCAL, SearchRequest(query="Which storks?", k=2))
        assert answer.generation == name and not answer.trace.channels_failed and answer.trace.channels["semantic"].returned


async def _shows(at_work: Pipeline, expected: dict[str, str]) -> bool:
    return await shown(at_work) == expected


async def _paused(at_work: Pipeline, stage: str) -> bool:
    lines, _ = await explained_lags(at_work.worker.storage)
    return [one["stage"] for one in lines if one["paused"]] == [stage]


async def _told(at_work: Pipeline, events: set[str]) -> bool:
    """Whether each of their producers has been told, and of one event one thing."""
    told = [one.data for one in [await Codec().decode(stored) async for stored in at_work.worker.storage.log.read("outcomes")] if one.data.event_id in events]
    kinds = {(data.event_id, data.name) for data in told}
    return kinds == {(event, "document.indexed") for event in events}


async def _standing(at_work: Pipeline, readers: set[str]) -> bool:
    return {pause.reader for pause in await PgPauses(at_work.pool).all()} == readers


async def _settled(at_work: Pipeline, generation: str, documents: int) -> bool:
    query = "select count(*) from visible v join documents d on d.id = v.document_id where generation = $1 and d.withdrawn is null"
    return bool(await at_work.pool.fetchval(query, generation) == documents)


async def _alone(at_work: Pipeline, generation: str) -> bool:
    return bool({reader.generation.name for reader, _ in at_work.worker.hosting.running.values()} == {generation})
