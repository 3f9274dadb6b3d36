"""A rolling upgrade: what a newer program states waits for one that can read it, and holds up nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.background.stuck import explained_lags
from anabranch.doctor import waiting
from anabranch.settings import Settings
from processors import STAGES, chunk
from schemas.events import DocumentChunked
from schemas.ids import document_id
from schemas.records import Record
from sql.pauses import PgPauses
from streams import partition
from streams.partitioning import partition_of
from tests.both_logs import PARTITIONS, on_both_logs
from tests.pipeline import Pipeline, pipeline, settings

__all__ = ["settings"]

OTHERS = [stage for stage in STAGES if stage is not chunk.STAGE]
RAISED = {1: lambda payload: payload}


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition, "RENEWED_S", 0.2)


def raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on this process is the newer program: it states the second version, and reads both."""
    monkeypatch.setattr(DocumentChunked, "version", 2)
    monkeypatch.setattr(DocumentChunked, "upcasts", RAISED)


def names(place: int, count: int, prefix: str) -> list[str]:
    """External ids of documents whose facts lie in that partition, where there are several."""
    every = (f"{prefix}-{number}" for number in range(10_000))
    return [name for name in every if partition_of(str(document_id("default", "", name)).encode(), PARTITIONS) == place][:count]


async def searchable(at_work: Pipeline) -> set[str]:
    rows = await at_work.pool.fetch("select external_id from visible v join documents d on d.id = v.document_id")
    return {row["external_id"] for row in rows}


@on_both_logs
async def test_a_newer_version_waits_in_its_partition_with_the_reason_and_goes_on_with_a_newer_worker(
    settings: Settings, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, waiting_ones = names(0, 1, "before"), names(0, 3, "newer")
    neighbours = [*names(1, 2, "beside"), *names(2, 2, "beside")]
    async with pipeline(tmp_path, database, settings=settings, stages=OTHERS) as older:
        async with pipeline(tmp_path, database, settings=settings, stages=[chunk.STAGE]) as old_chunker:
            await old_chunker.push(dict.fromkeys(first, "Herons nest."))
            await older.until(lambda: _equal(older, set(first)))
        with monkeypatch.context() as upgraded:
            raised(upgraded)
            async with pipeline(tmp_path, database, settings=settings, stages=[chunk.STAGE]) as new_chunker:
                new_chunker.number = 10
                await new_chunker.push(dict.fromkeys(waiting_ones, "Storks nest."))
                await older.until(lambda: _paused(older, {"embed", "extract"}))
        found = await older.line("embed")
        assert found["why"] == "stands still in partition 0: document.chunked.v2 on topic chunked is newer than v1, the newest this worker knows"
        assert found["remedy"].startswith("Upgrade this worker") and found["lag"] >= 1
        findings = {finding.name: finding for finding in await waiting.stages(settings)}
        assert findings["stage: embed"].status == "warn" and "newer than v1" in findings["stage: embed"].detail and "Upgrade" in findings["stage: embed"].fix
        # Partitions beside it go on; on the table in Postgres, which has one, the other topics do.
        async with pipeline(tmp_path, database, settings=settings, stages=[chunk.STAGE]) as old_chunker:
            old_chunker.number = 20
            await old_chunker.push(dict.fromkeys(neighbours, "Cranes nest.") | dict.fromkeys(first))
            shown = set() if settings.log_kind == "postgres" else set(neighbours)
            await older.until(lambda: _equal(older, shown))
            await older.until(lambda: _accepted(older, len(neighbours) + len(waiting_ones)))
        assert not (await older.line("index"))["paused"]
        assert await older.pool.fetchval("select count(*) from dead_letters") == 0
    raised(monkeypatch)
    async with pipeline(tmp_path, database, settings=settings) as newer:
        await newer.until(lambda: _equal(newer, {*neighbours, *waiting_ones}))
        await newer.quiet()
        assert await newer.pool.fetchval("select count(*) from dead_letters") == 0
        assert await PgPauses(newer.pool).all() == [] and (await newer.line("embed"))["lag"] == 0


@on_both_logs
async def test_a_newer_version_on_raw_is_buried_with_a_reason_that_can_be_read_and_its_neighbours_pass(
    settings: Settings, database: str, tmp_path: Path
) -> None:
    headers = {"ce_specversion": b"1.0", "ce_id": b"1", "ce_source": b"shop", "ce_type": b"document.received.v2", "content-type": b"application/json"}
    async with pipeline(tmp_path, database, settings=settings) as at_work:
        await at_work.worker.storage.log.append([Record("raw", b"beside", b'{"external_id": "a", "content": {"text": "x"}}', headers)])
        await at_work.fill_live({"beside": "Herons nest."})
        await at_work.until(lambda: at_work.pool.fetchval("select count(*) from dead_letters"))
        [letter] = await at_work.pool.fetch("select stage, code, detail, remedy, buried_type from dead_letters")
    assert tuple(letter)[:2] == ("receive", "UNKNOWN_VERSION") and letter["buried_type"] == "document.received.v2"
    assert letter["detail"] == "document.received.v2 is a version that this system does not know; the newest is v1" and "JSON Schema" in letter["remedy"]


async def _equal(at_work: Pipeline, expected: set[str]) -> bool:
    return await searchable(at_work) == expected


async def _paused(at_work: Pipeline, stages: set[str]) -> bool:
    lines, _ = await explained_lags(at_work.worker.storage)
    return {one["stage"] for one in lines if one["paused"]} == stages


async def _accepted(at_work: Pipeline, count: int) -> bool:
    return bool(await at_work.pool.fetchval("select count(*) from documents where withdrawn is null") == count)
