"""Lag is explained by locks, by engines that are waited for, and by what holds the log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from anabranch.composition.storage import prepare_storage
from anabranch.config.loader import load_settings
from anabranch.config.settings import Settings
from anabranch.doctor import stalls
from schemas.errors import EngineUnavailable, LogUnavailable
from schemas.ports.engines import TextEmbedding
from schemas.timestamps import utc_now
from schemas.topics import Record
from services.monitoring.lag_diagnosis import explain_lags
from services.monitoring.overview import MonitoringService
from services.storage import Storage
from sql.catalog.documents import PgDocuments
from sql.log.event_log import PgLog
from streams import stage_consumer
from streams.stage_consumer import format_group_name
from tests.fakes.null_embedder import NullEmbedder
from tests.support.api_client import LOCAL_CALLER
from tests.support.eventually import eventually
from tests.support.pipeline import Pipeline, null_overrides, run_pipeline


@pytest.fixture
def settings(tmp_path: Path, database: str) -> Settings:
    return load_settings(data_dir=tmp_path / "data", sets=[f"database.url={database}"])


@pytest.fixture
async def storage(settings: Settings, database: str) -> AsyncIterator[Storage]:
    async with prepare_storage(settings, database, pool_size=3, name="stuck") as prepared:
        yield prepared


@pytest.fixture
async def writer(database: str) -> AsyncIterator[asyncpg.Connection]:
    """Yield a named connection for a transaction that stays open."""
    connection = await asyncpg.connect(
        database, server_settings={"application_name": "slow loader"}
    )
    yield connection
    await connection.close()


async def fetch_lag_line(storage: Storage, stage: str = "control") -> dict[str, Any]:
    lines, _ = await explain_lags(storage)
    return next(one for one in lines if one["stage"] == stage)


async def append_control_record(storage: Storage, hours_ago: float = 0.0) -> None:
    await storage.log.append([Record("control", b"a", b"{}", {})])
    await storage.pool.execute(
        "update events set appended_at = clock_timestamp() - make_interval(secs => $1)",
        3600 * hours_ago,
    )


async def insert_lease(storage: Storage) -> None:
    await storage.pool.execute(
        "insert into log_readers (reader, topic, lease_owner, lease_until) "
        "values ($1, 'control', $2, clock_timestamp() + interval '1 minute')",
        format_group_name("control", None),
        uuid4(),
    )


async def begin_and_write(writer: asyncpg.Connection) -> None:
    """Begin and write, because only then does a transaction have an id."""
    await writer.execute("begin")
    await writer.execute("create temporary table held as select 1")


async def test_no_lag_gives_no_diagnosis(storage: Storage) -> None:
    found = await fetch_lag_line(storage)
    assert (found["lag"], found["reason"], found["remedy"], found["oldest_seconds"]) == (
        0,
        None,
        None,
        None,
    )


async def test_stage_without_consumer_is_reported_with_waiting_time(storage: Storage) -> None:
    await append_control_record(storage, hours_ago=1)
    found = await fetch_lag_line(storage)
    assert (found["lag"], found["reason"]) == (1, "no worker consumes it") and found[
        "oldest_seconds"
    ] >= 3600


async def test_transaction_holding_the_horizon_is_named(
    storage: Storage, writer: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.monitoring.lag_diagnosis.MIN_BLOCKING_S", 0.0)
    await insert_lease(storage)
    await begin_and_write(writer)
    await append_control_record(storage)
    _, horizon = await explain_lags(storage)
    found = await fetch_lag_line(storage)
    assert (
        horizon is not None
        and horizon["pid"] == writer.get_server_pid()
        and "create temporary table held" in horizon["query"]
    )
    assert (
        "held by a transaction of slow loader" in found["reason"]
        and f"pg_terminate_backend({horizon['pid']})" in found["remedy"]
    )
    await writer.execute("rollback")
    assert (await fetch_lag_line(storage))["reason"] == "it is being processed"


async def test_first_lock_holder_in_queue_is_named(
    storage: Storage, writer: asyncpg.Connection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Name neither a waiter nor the worker whose own transaction delays the log."""
    monkeypatch.setattr("services.monitoring.lag_diagnosis.MIN_BLOCKING_S", 0.0)
    await insert_lease(storage)
    await append_control_record(storage)
    await writer.execute("begin; lock table anabranch.documents in share mode")
    queue = [
        await asyncpg.connect(database, server_settings={"application_name": name})
        for name in ("psql", "anabranch worker")
    ]
    waiting = []
    for connection in queue:
        await connection.execute("begin; create temporary table held as select 1")
        waiting.append(
            asyncio.create_task(connection.execute("update anabranch.documents set title = ''"))
        )
        await eventually(
            lambda connection=connection: storage.pool.fetchval(
                "select exists (select from pg_locks where pid = $1 and not granted)",
                connection.get_server_pid(),
            )
        )
    found = await fetch_lag_line(storage)
    assert (
        "locked by a transaction of slow loader" in found["reason"]
        and "in share mode" in found["reason"]
    )
    assert f"pg_terminate_backend({writer.get_server_pid()})" in found["remedy"]
    await writer.execute("rollback")
    for connection, task in zip(queue, waiting, strict=True):
        await task
        await connection.close()
    assert "locked" not in (await fetch_lag_line(storage))["reason"]


async def test_repeatedly_retried_event_is_named(storage: Storage) -> None:
    await insert_lease(storage)
    await append_control_record(storage)
    document = uuid4()
    await storage.pool.execute(
        "insert into job_stages (generation, document_id, ord, stage, part, state, attempts, "
        "log_topic, log_partition, log_offset, started_at) "
        "values ('', $1, '{1,1}', 'control', 1, 'running', 4, 'control', 0, 7, clock_timestamp() "
        "- interval '90 seconds')",
        document,
    )
    found = await fetch_lag_line(storage)
    assert (
        str(document) in found["reason"]
        and "control[0]@7" in found["reason"]
        and "attempt 4" in found["reason"]
        and str(document) in found["remedy"]
    )


async def test_unstarted_lag_is_not_reported_as_in_progress(storage: Storage) -> None:
    """Of Kafka it is not known who reads."""
    await insert_lease(storage)
    await append_control_record(storage, hours_ago=1)
    found = await fetch_lag_line(storage)
    assert found["reason"] == "no pending event is being processed" and "worker" in found["remedy"]


async def test_doctor_warns_only_about_long_waits(storage: Storage, settings: Settings) -> None:
    assert [(finding.state, finding.detail) for finding in await stalls.check_stages(settings)] == [
        ("pass", "no pending events")
    ]
    await append_control_record(storage)
    [fresh] = await stalls.check_stages(settings)
    assert fresh.state == "pass" and fresh.detail.endswith("none for 30 s")
    await append_control_record(storage, hours_ago=1)
    stuck = {finding.check: finding for finding in await stalls.check_stages(settings)}[
        "stage: control"
    ]
    assert (
        stuck.state == "warn"
        and "no worker consumes it" in stuck.detail
        and "anabranch up" in stuck.remedy
    )


async def test_doctor_names_transaction_holding_back_the_log(
    storage: Storage,
    settings: Settings,
    writer: asyncpg.Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stalls, "LOCK_THRESHOLD_S", 0.0)
    await begin_and_write(writer)
    findings = {finding.check: finding for finding in await stalls.check_stages(settings)}
    assert (
        findings["log horizon"].state == "warn"
        and str(writer.get_server_pid()) in findings["log horizon"].remedy
    )


class UnavailableEmbedder(NullEmbedder):
    is_unavailable = True

    async def embed(self, texts: Sequence[str]) -> list[TextEmbedding]:
        if self.is_unavailable:
            raise EngineUnavailable("http://embedder.test does not answer")
        return await super().embed(texts)


async def test_lag_and_doctor_name_the_unavailable_engine(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage_consumer, "STATUS_RENEWAL_S", 0.2)
    embedder = UnavailableEmbedder(dimension=8)
    settings = load_settings(data_dir=tmp_path, sets=[f"database.url={database}"])
    async with run_pipeline(
        tmp_path, database, replace(null_overrides(), embedder=embedder), settings=settings
    ) as at_work:
        await at_work.push({"heron": "Herons nest."})

        async def is_reported() -> bool:
            return bool((await at_work.fetch_lag("embed"))["paused"])

        await at_work.wait_for(is_reported)
        found = await at_work.fetch_lag("embed")
        assert (
            found["reason"] == "stalled: http://embedder.test does not answer"
            and "model server" in found["remedy"]
        )
        assert not (await at_work.fetch_lag("chunk"))["paused"]
        await check_waiting(at_work, found["remedy"])
        [finding] = [
            one for one in await stalls.check_stages(settings) if one.check == "stage: embed"
        ]
        assert finding.state == "warn" and "http://embedder.test" in finding.detail
        embedder.is_unavailable = False
        await at_work.push_and_wait({})
        await at_work.wait_for(lambda: is_pause_cleared(at_work))


class UnavailableLog(PgLog):
    async def count_pending(self, group: str, topic: str) -> int:
        raise LogUnavailable("no broker")


async def check_waiting(at_work: Pipeline, remedy: str) -> None:
    """A waiting document says why, to each role what it may know."""
    unused: Any = None
    clock = [utc_now() - timedelta(hours=1)]
    monitoring = MonitoringService(
        *(at_work.worker.storage, at_work.metrics, unused, "1", {}, lambda: 0, lambda: clock[0])
    )
    documents = PgDocuments(at_work.pool)
    filters = dict.fromkeys(("external_id", "collection", "tag", "state", "after"))

    async def explain(**caller: Any) -> list[dict[str, Any] | None]:
        who = replace(LOCAL_CALLER, **caller)
        [listed], _ = await documents.find_documents(who, **filters, limit=9)
        details = await documents.fetch_document(who, listed["document_id"])
        assert details is not None
        await monitoring.explain_waiting(who, listed, details)
        return [listed.get("waiting"), details.get("waiting")]

    assert await explain(role="operator") == [None, None]
    clock[0] += timedelta(hours=1, seconds=3)
    operator = {
        "stage": "embed",
        "pending": 1,
        "progress": None,
        "paused": True,
        "reason": "stalled: http://embedder.test does not answer",
        "remedy": remedy,
    }
    hidden = operator | {"reason": None, "remedy": None}
    assert await explain(role="operator") == [operator] * 2
    assert await explain(role="admin") == [hidden] * 2
    assert await explain(role="reader") == [hidden | {"pending": None}] * 2
    monitoring = replace(
        monitoring, storage=replace(monitoring.storage, log=UnavailableLog(at_work.pool))
    )
    [unknown, _] = await explain(role="operator")
    assert unknown == operator | {
        "pending": None,
        "paused": False,
        "reason": "no broker",
        "remedy": LogUnavailable.remedy,
    }


async def is_pause_cleared(at_work: Pipeline) -> bool:
    return not await at_work.pool.fetch("select from reader_status")
