"""Events of a newer program wait for a worker that supports them and block no others."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.config.settings import Settings
from anabranch.doctor import stalls
from processors import STAGES, chunk
from schemas.events import DocumentChunked
from schemas.ids import make_document_id
from schemas.topics import Record
from services.monitoring.lag_diagnosis import explain_lags
from sql.operations.monitoring import PgReaderStatus
from streams import partition_sink
from tests.fakes.memory_log import choose_partition
from tests.support.log_backends import PARTITIONS, on_both_logs
from tests.support.pipeline import Pipeline, run_pipeline

OTHER_STAGES = [stage for stage in STAGES if stage is not chunk.STAGE]
UPCASTS = {1: lambda payload: payload}


@pytest.fixture(autouse=True)
def fast_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_sink, "STATUS_RENEWAL_S", 0.2)


def raise_event_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turn this process into the newer program, which writes version 2 and reads both versions."""
    monkeypatch.setattr(DocumentChunked, "version", 2)
    monkeypatch.setattr(DocumentChunked, "upcasts", UPCASTS)


def find_names_in_partition(place: int, count: int, prefix: str) -> list[str]:
    """Find external ids whose documents' events lie in the partition."""
    every = (f"{prefix}-{number}" for number in range(10_000))
    return [
        name
        for name in every
        if choose_partition(str(make_document_id("default", "", name)).encode(), PARTITIONS)
        == place
    ][:count]


async def fetch_visible_ids(at_work: Pipeline) -> set[str]:
    rows = await at_work.pool.fetch(
        "select external_id from visible v join documents d on d.id = v.document_id"
    )
    return {row["external_id"] for row in rows}


@on_both_logs
async def test_newer_event_version_pauses_partition_until_worker_upgrade(
    settings: Settings, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, waiting_ones = (
        find_names_in_partition(0, 1, "before"),
        find_names_in_partition(0, 3, "newer"),
    )
    neighbours = [
        *find_names_in_partition(1, 2, "beside"),
        *find_names_in_partition(2, 2, "beside"),
    ]
    async with run_pipeline(tmp_path, database, settings=settings, stages=OTHER_STAGES) as older:
        async with run_pipeline(
            tmp_path, database, settings=settings, stages=[chunk.STAGE]
        ) as old_chunker:
            await old_chunker.push(dict.fromkeys(first, "Herons nest."))
            await older.wait_for(lambda: _is_visible(older, set(first)))
        with monkeypatch.context() as upgraded:
            raise_event_version(upgraded)
            async with run_pipeline(
                tmp_path, database, settings=settings, stages=[chunk.STAGE]
            ) as new_chunker:
                new_chunker.n_pushed = 10
                await new_chunker.push(dict.fromkeys(waiting_ones, "Storks nest."))
                await older.wait_for(lambda: _are_stages_paused(older, {"embed", "extract"}))
        found = await older.fetch_lag("embed")
        assert found["reason"] == (
            "stalled in partition 0: This worker does not support document.chunked.v2 "
            "on topic chunked; its newest version is v1."
        )
        assert found["remedy"].startswith("Upgrade this worker") and found["lag"] >= 1
        findings = {finding.check: finding for finding in await stalls.check_stages(settings)}
        assert (
            findings["stage: embed"].state == "warn"
            and "newest version is v1" in findings["stage: embed"].detail
            and "Upgrade" in findings["stage: embed"].remedy
        )
        # Partitions beside it go on; on the table in Postgres, which has one, the other topics do.
        async with run_pipeline(
            tmp_path, database, settings=settings, stages=[chunk.STAGE]
        ) as old_chunker:
            old_chunker.n_pushed = 20
            await old_chunker.push(dict.fromkeys(neighbours, "Cranes nest.") | dict.fromkeys(first))
            shown = set() if settings.log_kind == "postgres" else set(neighbours)
            await older.wait_for(lambda: _is_visible(older, shown))
            await older.wait_for(
                lambda: _has_document_count(older, len(neighbours) + len(waiting_ones))
            )
        assert not (await older.fetch_lag("index"))["paused"]
        assert await older.pool.fetchval("select count(*) from dead_letters") == 0
    raise_event_version(monkeypatch)
    async with run_pipeline(tmp_path, database, settings=settings) as newer:
        await newer.wait_for(lambda: _is_visible(newer, {*neighbours, *waiting_ones}))
        await newer.wait_until_idle()
        assert await newer.pool.fetchval("select count(*) from dead_letters") == 0
        assert (
            await PgReaderStatus(newer.pool).list_current() == []
            and (await newer.fetch_lag("embed"))["lag"] == 0
        )


@on_both_logs
async def test_newer_event_version_on_raw_is_dead_lettered(
    settings: Settings, database: str, tmp_path: Path
) -> None:
    headers = {
        "ce_specversion": b"1.0",
        "ce_id": b"1",
        "ce_source": b"shop",
        "ce_type": b"document.received.v2",
        "content-type": b"application/json",
    }
    async with run_pipeline(tmp_path, database, settings=settings) as at_work:
        await at_work.worker.storage.log.append(
            [Record("raw", b"beside", b'{"external_id": "a", "content": {"text": "x"}}', headers)]
        )
        await at_work.push_and_wait_until_visible({"beside": "Herons nest."})
        await at_work.wait_for(lambda: at_work.pool.fetchval("select count(*) from dead_letters"))
        [letter] = await at_work.pool.fetch(
            "select stage, code, detail, remedy, original_type from dead_letters"
        )
    assert (
        tuple(letter)[:2] == ("receive", "UNKNOWN_VERSION")
        and letter["original_type"] == "document.received.v2"
    )
    assert (
        letter["detail"] == "Unknown version document.received.v2. The newest is v1."
        and "JSON Schema" in letter["remedy"]
    )


async def _is_visible(at_work: Pipeline, expected: set[str]) -> bool:
    return await fetch_visible_ids(at_work) == expected


async def _are_stages_paused(at_work: Pipeline, stages: set[str]) -> bool:
    lines, _ = await explain_lags(at_work.worker.storage)
    return {one["stage"] for one in lines if one["paused"]} == stages


async def _has_document_count(at_work: Pipeline, count: int) -> bool:
    return bool(
        await at_work.pool.fetchval("select count(*) from documents where withdrawn is null")
        == count
    )
