"""Somebody has locked a table and does not let go: what is looked at and what is sent gets an answer, with his name."""

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

from anabranch.background.stuck import explained_lags
from anabranch.cli import main
from anabranch.composition import api
from anabranch.composition.api import prepare_api
from anabranch.composition.overrides import Overrides
from anabranch.composition.storage import Storage, prepare_storage
from anabranch.desk.intake import LogIntake
from anabranch.doctor import connections, waiting
from anabranch.doctor.findings import run_check
from anabranch.process.data_folder import Server
from anabranch.process.listening import free_port
from anabranch.settings import Settings
from anabranch.settings_loading import load_settings
from api.services import IngestRequest
from engines.embed.null import NullEmbedder
from processors import STAGES
from schemas.errors import DatabaseUnavailable, LogUnavailable
from schemas.generations import Generation, IndexConfig
from schemas.records import Record
from schemas.rows import BuiltRow, GenerationRow, LiveRow
from schemas.values import Amendment
from sql.inspection import held_locks
from tests.api_access import api_client
from tests.both_logs import on_both_logs
from tests.callers import LOCAL
from tests.generations import decide

LOCK = "begin; lock table anabranch.{} in access exclusive mode"


@pytest.fixture
def settings(tmp_path: Path, database: str, log_sets: list[str]) -> Settings:
    return load_settings(data_dir=tmp_path / "data", sets=[f"database.url={database}", *log_sets])


@pytest.fixture
async def storage(settings: Settings, database: str) -> AsyncIterator[Storage]:
    async with prepare_storage(settings, database, pool_size=3, name="looking", lock_wait_s=0.05) as prepared:
        yield prepared


@pytest.fixture
async def somebody(database: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(database, server_settings={"application_name": "slow loader"})
    yield connection
    await connection.close()


@pytest.fixture(autouse=True)
def in_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "HELD_S", 0.0)
    monkeypatch.setattr(waiting, "LOCK_WAIT_S", 0.05)
    monkeypatch.setattr(connections, "LOCK_WAIT_S", 0.05)
    monkeypatch.setattr("anabranch.cli.topics.LOCK_WAIT_S", 0.05)
    monkeypatch.setattr("anabranch.background.stuck.HELD_S", 0.0)
    monkeypatch.setattr(api, "LOCK_WAIT_S", 0.05)


async def test_every_reader_of_a_log_that_is_locked_says_who_holds_it(storage: Storage, somebody: asyncpg.Connection) -> None:
    await somebody.execute(LOCK.format("events"))
    lines, _ = await explained_lags(storage)
    assert [line["stage"] for line in lines] == [stage.name for stage in STAGES]
    for line in lines:
        assert line["lag"] is None and line["why"].startswith("events is locked by a transaction of slow loader") and "lock table" in line["why"]
        assert f"pg_terminate_backend({somebody.get_server_pid()})" in line["remedy"]
    await somebody.execute("rollback")
    assert [line["lag"] for line in (await explained_lags(storage))[0]] == [0] * len(STAGES)


@on_both_logs
async def test_the_doctor_names_who_has_locked_the_documents_though_nothing_waits_yet(
    storage: Storage, settings: Settings, somebody: asyncpg.Connection
) -> None:
    assert await waiting.locks(settings) == []
    await somebody.execute(LOCK.format("documents"))
    [finding] = await waiting.locks(settings)
    assert finding.status == "warn" and finding.detail.startswith("documents is locked by a transaction of slow loader")
    assert f"pid {somebody.get_server_pid()}, idle in transaction" in finding.detail and str(somebody.get_server_pid()) in finding.fix
    assert all(line["lag"] is not None for line in (await explained_lags(storage))[0]), "how far they are can be seen all the same"


@pytest.mark.parametrize("table", ["events", "generations", "dead_letters", "reader_pauses"])
async def test_the_doctor_names_who_keeps_it_from_looking(table: str, storage: Storage, settings: Settings, somebody: asyncpg.Connection) -> None:
    await somebody.execute(LOCK.format(table))
    found = []
    for check in (connections.database, waiting.stages):
        try:
            found += [finding.detail for finding in await waiting.whose_lock(settings, lambda check=check: check(settings))]
        except DatabaseUnavailable as error:
            found.append(error.detail)
    assert any(f"{table} is locked by a transaction of slow loader (pid {somebody.get_server_pid()}" in detail for detail in found), found


@pytest.mark.parametrize("mode", ["access share", "row exclusive", "share update exclusive"])
async def test_a_lock_that_keeps_nobody_from_writing_is_not_named(mode: str, database: str, storage: Storage, somebody: asyncpg.Connection) -> None:
    await somebody.execute(f"begin; lock table anabranch.documents in {mode} mode")
    assert await held_locks(database, 0.0) == []


async def test_the_command_names_who_locks_what_it_needs_and_the_table_that_it_does_not(
    settings: Settings, storage: Storage, database: str, somebody: asyncpg.Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["topics", "lag", "--data", str(settings.data_dir), "--set", f"database.url={database}"]
    await somebody.execute(LOCK.format("documents"))
    assert await asyncio.to_thread(main, [*command, "--json"]) == 0
    [lock] = json.loads(capsys.readouterr().out)["locks"]
    assert (lock["tables"], lock["pid"], lock["application"]) == (["documents"], somebody.get_server_pid(), "slow loader")
    assert await asyncio.to_thread(main, command) == 0
    assert "documents is locked by a transaction of slow loader" in capsys.readouterr().err
    await somebody.execute(f"rollback; {LOCK.format('topics')}")
    assert await asyncio.to_thread(main, command) != 0
    assert "topics is locked by a transaction of slow loader" in capsys.readouterr().err


@on_both_logs
async def test_uploads_are_answered_while_the_documents_are_locked_and_taken_in_afterwards(
    settings: Settings, database: str, log_kind: str, somebody: asyncpg.Connection
) -> None:
    async with prepare_api(settings, database, overrides=Overrides(embedder=NullEmbedder(64, 16))) as services, api_client(services) as http:
        for table in ("documents", "jobs", *(["events"] if log_kind == "postgres" else [])):
            await somebody.execute(LOCK.format(table))
            refused = await http.post("/v1/ingest", json={"text": "Storks", "external_id": table})
            assert (refused.status_code, refused.json()["code"]) == (503, "TABLES_LOCKED"), refused.text
            assert "anabranch doctor" in refused.json()["remedy"] and refused.headers["retry-after"]
            await somebody.execute("rollback")
            assert (await http.post("/v1/ingest", json={"text": "Storks", "external_id": table})).status_code == 202


async def test_whatever_keeps_a_request_waiting_it_is_answered_in_the_end_with_a_way_to_repeat_it(
    settings: Settings, database: str, somebody: asyncpg.Connection
) -> None:
    async with prepare_api(settings, database, overrides=Overrides(embedder=NullEmbedder(64, 16))) as services:
        assert isinstance(services.intake, LogIntake)
        patient = replace(services.intake, patience_s=0.0)
        upload = patient.accept(LOCAL, IngestRequest(text="Storks", external_id="storks"), None, patient.begin(LOCAL, None))
        amendment, withdrawal = patient.amend(LOCAL, uuid4(), Amendment(title="Storks")), patient.withdraw(LOCAL, uuid4())
        for refused, way in ((upload, "the same Idempotency-Key"), (amendment, "GET /v1/documents/{id}"), (withdrawal, "withdrawn already")):
            with pytest.raises(LogUnavailable, match="did not take it within 0 s") as found:
                await refused
            assert "anabranch doctor" in found.value.remedy and way in found.value.remedy
            assert ("Idempotency-Key" in found.value.remedy) == (refused is upload), "the others take none"


async def test_the_doctor_survives_a_server_that_does_not_answer(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"http://127.0.0.1:{free_port('127.0.0.1')}"
    gone = Server(url, "token", None, "worker", "postgres", 1, str(settings.data_dir), persistent=True)
    monkeypatch.setattr(connections, "find_server", lambda folder: gone)
    [finding] = await run_check("server", partial(connections.server, settings))
    assert finding.status == "fail" and f"{gone.url} (pid 1) does not answer" in finding.detail


@on_both_logs
async def test_the_readers_of_all_generations_are_shown_each_with_its_own(storage: Storage) -> None:
    first = Generation(name="g1", config=IndexConfig(), how={}, topics={}, state="building")
    second = first.model_copy(update={"name": "g2", "topics": {"embedded": "embedded.g2"}})
    await decide(storage.pool, GenerationRow(first), BuiltRow("g1", {}), LiveRow("g1"))
    await decide(storage.pool, GenerationRow(second))
    assert all(line["lag"] == 0 for line in (await explained_lags(storage))[0]), "also while its topic is not made yet"
    await storage.log.create_topics({"embedded.g2": 1}, retention_ms={})
    await storage.log.append([Record("embedded.g2", b"a", b"{}", {})])
    assert [line["generation"] for line in (await explained_lags(storage))[0] if line["lag"]] == ["g2"]
    shown = {(line["stage"], line["generation"]): (line["group"], line["topic"]) for line in (await explained_lags(storage))[0]}
    assert shown["index", "g1"] == ("anabranch.index.g1", "embedded")
    assert shown["index", "g2"] == ("anabranch.index.g2", "embedded.g2")
    assert shown["transcribe", None] == ("anabranch.transcribe.g1", "accepted") and shown["receive", None] == ("anabranch.receive", "raw")
