"""Requests and events behind a locked table are answered with the lock holder's name."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from uuid import uuid4

import asyncpg
import pytest

from anabranch.cli import main
from anabranch.composition import api
from anabranch.composition.api import prepare_api
from anabranch.composition.storage import prepare_storage
from anabranch.config.loader import load_settings
from anabranch.config.overrides import Overrides
from anabranch.config.settings import Settings
from anabranch.doctor import connections, stalls
from anabranch.doctor.check_runner import run_check
from anabranch.process.data_folder import ServerInfo
from anabranch.process.tcp_ports import find_free_port
from processors import STAGES
from schemas.errors import DatabaseUnavailable, LogUnavailable
from schemas.generations import Generation, IndexConfig
from schemas.ingest import IngestRequest
from schemas.topics import Record
from schemas.values import Amendment
from services.ingest import IngestService
from services.monitoring.lag_diagnosis import explain_lags
from services.storage import Storage
from sql.operations.monitoring import fetch_blocking_transactions
from tests.fakes.null_embedder import NullEmbedder
from tests.support.api_client import LOCAL_CALLER, api_client
from tests.support.generation_copies import apply_control_rows, built_row, created_row, promoted_row
from tests.support.log_backends import on_both_logs
from tests.support.submissions import submit

LOCK = "begin; lock table anabranch.{} in access exclusive mode"


@pytest.fixture
def settings(tmp_path: Path, database: str, log_settings: list[str]) -> Settings:
    return load_settings(
        data_dir=tmp_path / "data", sets=[f"database.url={database}", *log_settings]
    )


@pytest.fixture
async def storage(settings: Settings, database: str) -> AsyncIterator[Storage]:
    async with prepare_storage(
        settings, database, pool_size=3, name="looking", lock_wait_s=0.05
    ) as prepared:
        yield prepared


@pytest.fixture
async def lock_holder(database: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(
        database, server_settings={"application_name": "slow loader"}
    )
    yield connection
    await connection.close()


@pytest.fixture(autouse=True)
def short_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stalls, "LOCK_THRESHOLD_S", 0.0)
    monkeypatch.setattr(connections, "LOCK_WAIT_S", 0.05)
    monkeypatch.setattr("anabranch.cli.topics.LOCK_WAIT_S", 0.05)
    monkeypatch.setattr("services.monitoring.lag_diagnosis.MIN_BLOCKING_S", 0.0)
    monkeypatch.setattr(api, "LOCK_TIMEOUT_S", 0.05)


async def test_locked_log_error_names_the_lock_holder(
    storage: Storage, lock_holder: asyncpg.Connection
) -> None:
    await lock_holder.execute(LOCK.format("events"))
    lines, _ = await explain_lags(storage)
    assert [line["stage"] for line in lines] == [stage.name for stage in STAGES]
    for line in lines:
        assert (
            line["lag"] is None
            and line["reason"].startswith("events is locked by a transaction of slow loader")
            and "lock table" in line["reason"]
        )
        assert f"pg_terminate_backend({lock_holder.get_server_pid()})" in line["remedy"]
    await lock_holder.execute("rollback")
    assert [line["lag"] for line in (await explain_lags(storage))[0]] == [0] * len(STAGES)


@on_both_logs
async def test_doctor_names_lock_holder_before_anything_waits(
    storage: Storage, settings: Settings, lock_holder: asyncpg.Connection
) -> None:
    assert await stalls.check_locks(settings) == []
    await lock_holder.execute(LOCK.format("documents"))
    [finding] = await stalls.check_locks(settings)
    assert finding.state == "warn" and finding.detail.startswith(
        "documents is locked by a transaction of slow loader"
    )
    assert (
        f"pid {lock_holder.get_server_pid()}, idle in transaction" in finding.detail
        and str(lock_holder.get_server_pid()) in finding.remedy
    )
    assert all(line["lag"] is not None for line in (await explain_lags(storage))[0]), (
        "how far they are can be seen all the same"
    )


@pytest.mark.parametrize("table", ["events", "generations", "dead_letters", "reader_status"])
async def test_doctor_names_lock_holder_blocking_its_queries(
    table: str, storage: Storage, settings: Settings, lock_holder: asyncpg.Connection
) -> None:
    await lock_holder.execute(LOCK.format(table))
    found = []
    for check in (connections.check_database, stalls.check_stages):
        try:
            found += [
                finding.detail
                for finding in await stalls.run_naming_lock_holder(
                    settings, lambda check=check: check(settings)
                )
            ]
        except DatabaseUnavailable as error:
            found.append(error.detail)
    assert any(
        f"{table} is locked by a transaction of slow loader (pid {lock_holder.get_server_pid()}"
        in detail
        for detail in found
    ), found


@pytest.mark.parametrize("mode", ["access share", "row exclusive", "share update exclusive"])
async def test_lock_that_blocks_no_writes_is_not_reported(
    mode: str, database: str, storage: Storage, lock_holder: asyncpg.Connection
) -> None:
    await lock_holder.execute(f"begin; lock table anabranch.documents in {mode} mode")
    assert await fetch_blocking_transactions(database, 0.0) == []


async def test_lag_command_names_lock_holders(
    settings: Settings,
    storage: Storage,
    database: str,
    lock_holder: asyncpg.Connection,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = [
        "topics",
        "lag",
        "--data",
        str(settings.data_dir),
        "--set",
        f"database.url={database}",
    ]
    await lock_holder.execute(LOCK.format("documents"))
    assert await asyncio.to_thread(main, [*command, "--json"]) == 0
    [lock] = json.loads(capsys.readouterr().out)["locks"]
    assert (lock["tables"], lock["pid"], lock["application"]) == (
        ["documents"],
        lock_holder.get_server_pid(),
        "slow loader",
    )
    assert await asyncio.to_thread(main, command) == 0
    assert "documents is locked by a transaction of slow loader" in capsys.readouterr().err
    await lock_holder.execute(f"rollback; {LOCK.format('topics')}")
    assert await asyncio.to_thread(main, command) != 0
    assert "topics is locked by a transaction of slow loader" in capsys.readouterr().err


@on_both_logs
async def test_uploads_are_refused_only_while_a_table_they_need_is_locked(
    settings: Settings, database: str, log_kind: str, lock_holder: asyncpg.Connection
) -> None:
    async with (
        prepare_api(
            settings, database, overrides=Overrides(embedder=NullEmbedder(64, 16))
        ) as services,
        api_client(services) as http,
    ):
        await lock_holder.execute(LOCK.format("documents"))
        accepted = await http.post("/v1/ingest", json={"text": "Storks", "external_id": "new"})
        assert accepted.status_code == 202, accepted.text
        await lock_holder.execute("rollback")
        log_tables = ["events"] if log_kind == "postgres" else []
        for table in ("document_revisions", "jobs", *log_tables):
            await lock_holder.execute(LOCK.format(table))
            refused = await http.post("/v1/ingest", json={"text": "Storks", "external_id": table})
            assert (refused.status_code, refused.json()["code"]) == (503, "TABLES_LOCKED"), (
                refused.text
            )
            assert "anabranch doctor" in refused.json()["remedy"] and refused.headers["retry-after"]
            await lock_holder.execute("rollback")
            assert (
                await http.post("/v1/ingest", json={"text": "Storks", "external_id": table})
            ).status_code == 202


async def test_blocked_request_times_out_with_retry_instructions(
    settings: Settings, database: str, lock_holder: asyncpg.Connection
) -> None:
    async with prepare_api(
        settings, database, overrides=Overrides(embedder=NullEmbedder(64, 16))
    ) as services:
        assert isinstance(services.ingest, IngestService)
        patient = replace(services.ingest, timeout_s=0.0)
        upload = submit(patient, LOCAL_CALLER, IngestRequest(text="Storks", external_id="storks"))
        amendment, withdrawal = (
            patient.amend_document(LOCAL_CALLER, uuid4(), Amendment(title="Storks")),
            patient.withdraw_document(LOCAL_CALLER, uuid4()),
        )
        for refused, way in (
            (upload, "the same Idempotency-Key"),
            (amendment, "GET /v1/documents/{id}"),
            (withdrawal, "withdrawing twice"),
        ):
            with pytest.raises(LogUnavailable, match="Timed out after 0 s") as found:
                await refused
            assert "anabranch doctor" in found.value.remedy and way in found.value.remedy
            assert ("Idempotency-Key" in found.value.remedy) == (refused is upload), (
                "the others take none"
            )


async def test_doctor_survives_unresponsive_server(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"http://127.0.0.1:{find_free_port('127.0.0.1')}"
    gone = ServerInfo(
        url, "token", None, "worker", "postgres", 1, str(settings.data_dir), persistent=True
    )
    monkeypatch.setattr(connections, "find_server", lambda folder: gone)
    [finding] = await run_check("server", partial(connections.check_server, settings))
    assert finding.state == "fail" and f"{gone.url} (pid 1) does not answer" in finding.detail


@on_both_logs
async def test_lag_lists_each_generation_with_its_own_consumers(storage: Storage) -> None:
    first = Generation(name="g1", config=IndexConfig(), how={}, topics={}, state="building")
    second = first.model_copy(update={"name": "g2", "topics": {"embedded": "embedded.g2"}})
    await apply_control_rows(
        storage.pool, created_row(first), built_row("g1", {}), promoted_row("g1")
    )
    await apply_control_rows(storage.pool, created_row(second))
    assert all(line["lag"] == 0 for line in (await explain_lags(storage))[0]), (
        "also while its topic is not made yet"
    )
    await storage.log.create_topics({"embedded.g2": 1}, retention_ms={})
    await storage.log.append([Record("embedded.g2", b"a", b"{}", {})])
    assert [line["generation"] for line in (await explain_lags(storage))[0] if line["lag"]] == [
        "g2"
    ]
    shown = {
        (line["stage"], line["generation"]): (line["group"], line["topic"])
        for line in (await explain_lags(storage))[0]
    }
    assert shown["index", "g1"] == ("anabranch.index.g1", "embedded")
    assert shown["index", "g2"] == ("anabranch.index.g2", "embedded.g2")
    assert shown["transcribe", None] == ("anabranch.transcribe.g1", "accepted") and shown[
        "receive", None
    ] == ("anabranch.receive", "raw")
