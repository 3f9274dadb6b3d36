"""Adding, resetting and assigning sources."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from schemas.errors import AnabranchError, ConfigurationError, InvalidRequest, NotFound
from schemas.sources import DeclaredSource, SequenceReset, SourceRequest, SourceSpec
from services.publishing import EventPublisher
from services.sources.service import SourceService
from services.sources.supervisor import SourceReader, SourceSupervisor
from streams.codec import Codec
from tests.fakes.memory_log import MemoryLog
from tests.fakes.memory_source_store import MemorySourceStore
from tests.support.api_client import LOCAL_CALLER, make_caller
from tests.support.eventually import eventually

NOW = datetime(2026, 1, 1, tzinfo=UTC)
FOLDER_SOURCE = {"kind": "folder", "path": "/library"}
TABLE_SOURCE = {"kind": "postgres", "table": "notes", "mapping": {"body": ["body"]}}
PRODUCERS = {"shop/contracts": ["acme"], "shop/shared": ["acme", "bolt"]}
TOPIC_SOURCE = {"kind": "debezium", "topic": "shop.notes", "mapping": {"body": ["body"]}}


class FakeSourceTables:
    def __init__(self, *rows: dict[str, Any]) -> None:
        self.rows = list(rows)

    async def list_overview(self) -> list[dict[str, Any]]:
        return self.rows

    async def has_numbered_documents(self, ce_source: str) -> bool:
        return ce_source != "nobody"


def make_source_row(
    connector: dict[str, Any], *, epoch: int = 1, removed: bool = False, tenant: str = "default"
) -> dict[str, Any]:
    spec = SourceSpec(name="crm", tenant=tenant, connector=connector).model_dump(mode="json")  # type: ignore[arg-type]
    counts = {"documents": 3, "pending": 0, "incomplete": 0, "last_change_at": None, "status": None}
    return {
        "name": "crm",
        "spec": spec,
        "epoch": epoch,
        "resets": [],
        "removed": removed,
        "withdraw": False,
        **counts,
    }


async def make_service(
    *rows: dict[str, Any], has_kafka: bool = True
) -> tuple[SourceService, MemoryLog]:
    log = MemoryLog(lambda: NOW)
    await log.create_topics({"control": 1}, retention_ms={})

    async def ends(topic: str) -> dict[int, int]:
        return {0: 7, 1: 9}

    return SourceService(
        EventPublisher(log, Codec(), lambda: NOW),
        FakeSourceTables(*rows),
        ends,
        has_kafka,
        lambda: [Path("/library")],
        PRODUCERS,
        projection_timeout_s=0,
    ), log


async def read_decisions(log: MemoryLog) -> list[Any]:
    return [(await Codec().decode(stored)).data async for stored in log.read("control")]


def make_request(**connector: Any) -> SourceRequest:
    return SourceRequest(name="crm", connector=connector)  # type: ignore[arg-type]


async def test_readded_source_gets_a_higher_epoch() -> None:
    sources, log = await make_service(make_source_row(FOLDER_SOURCE, epoch=4, removed=True))
    await sources.add_source("default", make_request(**FOLDER_SOURCE))
    [added] = await read_decisions(log)
    assert (added.source.name, added.epoch) == ("crm", 5)


@pytest.mark.parametrize(
    ("connector", "code"),
    [
        (TOPIC_SOURCE, "NEEDS_KAFKA"),
        (TABLE_SOURCE | {"dsn": "postgresql://me:secret@db/shop"}, "DSN_IN_REQUEST"),
        (TABLE_SOURCE | {"dsn": "postgresql://127.0.0.1:1/shop"}, "DSN_IN_REQUEST"),
        (TABLE_SOURCE | {"table": "keystore.keys"}, "FORBIDDEN_TABLE"),
        (TABLE_SOURCE | {"table": "anabranch.documents"}, "FORBIDDEN_TABLE"),
        (TABLE_SOURCE | {"table": "pg_catalog.pg_authid"}, "FORBIDDEN_TABLE"),
        ({"kind": "folder", "path": "/root/.ssh"}, "FORBIDDEN_FOLDER"),
        ({"kind": "folder", "path": "/library/../etc"}, "FORBIDDEN_FOLDER"),
        ({"kind": "folder", "path": "/library-of-others"}, "FORBIDDEN_FOLDER"),
        ({"kind": "urls", "urls": ["https://me:secret@example.org/"]}, "PASSWORD_IN_LOG"),
        ({"kind": "folder", "path": "library"}, "RELATIVE_PATH"),
    ],
)
async def test_forbidden_source_is_refused_before_publishing(
    connector: dict[str, Any], code: str
) -> None:
    sources, log = await make_service(has_kafka=False)
    with pytest.raises(InvalidRequest) as refused:
        await sources.add_source("default", make_request(**connector))
    assert refused.value.code == code
    assert "secret" not in refused.value.detail
    assert await read_decisions(log) == []


async def test_source_name_is_unique_and_visible_to_its_tenant() -> None:
    sources, _ = await make_service(make_source_row(FOLDER_SOURCE))
    with pytest.raises(InvalidRequest):
        await sources.add_source("default", make_request(**FOLDER_SOURCE))
    with pytest.raises(NotFound):
        await sources.get_source("another", "crm")
    assert await sources.list_sources("another") == []


async def test_reset_starts_at_current_end_offsets() -> None:
    sources, log = await make_service(make_source_row(TOPIC_SOURCE))
    assert (await sources.reset_source(LOCAL_CALLER, "crm"))["begins"] == {0: 7, 1: 9}
    [reset] = await read_decisions(log)
    assert reset.reset == SequenceReset(epoch=2, begins={0: 7, 1: 9})


async def test_numbered_producer_can_be_reset_and_unknown_cannot() -> None:
    sources, log = await make_service()
    await sources.reset_source(LOCAL_CALLER, "shop/contracts")
    assert [(reset.source, reset.reset.epoch) for reset in await read_decisions(log)] == [
        ("shop/contracts", 2)
    ]
    with pytest.raises(NotFound):
        await sources.reset_source(LOCAL_CALLER, "nobody")


@pytest.mark.parametrize(
    "name",
    ["crm", "shop/contracts", "shop/shared", "shop/unnamed", "anabranch/source/crm", "nobody"],
)
async def test_admin_cannot_reset_sources_of_other_tenants(name: str) -> None:
    sources, log = await make_service(make_source_row(TABLE_SOURCE, tenant="acme"))
    with pytest.raises(NotFound) as refused:
        await sources.reset_source(replace(make_caller("bolt"), role="admin"), name)
    assert refused.value.code == "NO_SUCH_SOURCE"
    assert await read_decisions(log) == []


async def test_admin_resets_producers_of_own_tenant() -> None:
    sources, log = await make_service(make_source_row(TABLE_SOURCE, tenant="acme"))
    for name in ("crm", "shop/contracts"):
        await sources.reset_source(replace(make_caller("acme"), role="admin"), name)
    assert [(reset.source, reset.tenant) for reset in await read_decisions(log)] == [
        ("crm", "acme"),
        ("shop/contracts", "acme"),
    ]


async def test_declared_source_cannot_be_reset_by_ce_source() -> None:
    sources, log = await make_service(make_source_row(TABLE_SOURCE))
    with pytest.raises(NotFound):
        await sources.reset_source(LOCAL_CALLER, "anabranch/source/crm")
    assert await read_decisions(log) == []


@pytest.mark.parametrize("removed", [True, False])
async def test_source_name_conflict_does_not_reveal_tenant(removed: bool) -> None:
    answers = []
    for rows, request_of in (
        (make_source_row(FOLDER_SOURCE, tenant="acme", removed=removed), "bolt"),
        (make_source_row(FOLDER_SOURCE, tenant="bolt"), "bolt"),
    ):
        sources, log = await make_service(rows)
        with pytest.raises(InvalidRequest) as refused:
            await sources.add_source(request_of, make_request(**FOLDER_SOURCE))
        answers.append((refused.value.code, refused.value.detail, refused.value.remedy))
        assert await read_decisions(log) == []
    assert answers[0] == answers[1] and "acme" not in str(answers[0])


def test_record_epoch_is_determined_by_its_offset() -> None:
    spec = SourceSpec(name="crm", connector=TOPIC_SOURCE)  # type: ignore[arg-type]
    declared = DeclaredSource(
        spec,
        5,
        (
            SequenceReset(epoch=4, begins={0: 10, 1: 20}),
            SequenceReset(epoch=5, begins={0: 30, 1: 20}),
        ),
    )
    assert [declared.epoch_at(0, offset) for offset in (9, 10, 29, 30)] == [3, 4, 4, 5]
    assert [declared.epoch_at(partition, 25) for partition in (1, 2)] == [5, 5]


class SupervisedSources:
    """Readers that record their runs, and fail on demand."""

    def __init__(self) -> None:
        self.sources: list[DeclaredSource] = []
        self.started: list[str] = []
        self.closed: list[str] = []
        self.error: AnabranchError | None = None

    async def fetch_sources(self) -> list[DeclaredSource]:
        return self.sources

    async def fetch_epochs(self) -> dict[str, int]:
        return {"shop/contracts": 2}

    @asynccontextmanager
    async def open(self, source: DeclaredSource) -> AsyncIterator[SourceReader]:
        yield FakeSourceReader(self, source)

    async def caught_up(self, source: DeclaredSource) -> None:
        """There is nothing to wait for."""

    async def close_down(self, source: DeclaredSource) -> None:
        self.closed.append(source.spec.name)


class FakeSourceReader:
    def __init__(self, world: SupervisedSources, source: DeclaredSource) -> None:
        self.supervised, self.source = world, source

    async def run(self) -> None:
        self.supervised.started.append(f"{self.source.spec.name} {self.source.epoch}")
        if self.supervised.error:
            raise self.supervised.error
        await asyncio.Event().wait()


@asynccontextmanager
async def run_supervisor(
    world: SupervisedSources,
    store: MemorySourceStore,
    monkeypatch: pytest.MonkeyPatch,
    epochs: dict[str, int] | None = None,
) -> AsyncIterator[SourceSupervisor]:
    for name in ("POLL_S", "RETRY_S"):
        monkeypatch.setattr(f"services.sources.supervisor.{name}", 0.001)
    hosts = SourceSupervisor(
        world,
        store,
        world.open,
        world.caught_up,
        world.close_down,
        UUID(int=1),
        {} if epochs is None else epochs,
    )
    running = asyncio.create_task(hosts.run())
    try:
        yield hosts
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def make_declared_source(epoch: int = 1, *, removed: bool = False) -> DeclaredSource:
    return DeclaredSource(
        SourceSpec(name="library", connector=FOLDER_SOURCE), epoch, removed=removed
    )  # type: ignore[arg-type]


async def test_reader_restarts_per_epoch_and_stops_on_removal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, store = SupervisedSources(), MemorySourceStore()
    async with run_supervisor(world, store, monkeypatch):
        for epoch in (1, 2):
            world.sources = [make_declared_source(epoch)]
            await eventually(lambda epoch=epoch: f"library {epoch}" in world.started)
        world.sources = [make_declared_source(2, removed=True)]
        await eventually(lambda: world.closed == ["library"])
    assert world.started == ["library 1", "library 2"]
    assert await store.acquire_lease("library", UUID(int=2), 60), (
        "the stopped supervisor released its lease"
    )


async def test_failed_source_reports_reason_and_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    world, store = SupervisedSources(), MemorySourceStore()
    world.sources, world.error = (
        [make_declared_source()],
        ConfigurationError("there is no folder", code="FOLDER_MISSING", remedy="Make it."),
    )
    async with run_supervisor(world, store, monkeypatch):
        await eventually(lambda: len(world.started) >= 2)
    assert (await store.fetch_notes("library"))["status"] == {
        "state": "failed",
        "code": "FOLDER_MISSING",
        "detail": "there is no folder",
        "remedy": "Make it.",
    }


async def test_source_leased_by_another_worker_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    world, store = SupervisedSources(), MemorySourceStore()
    world.sources = [make_declared_source()]
    other = UUID(int=2)
    async with store.open_session(other), run_supervisor(world, store, monkeypatch):
        assert await store.acquire_lease("library", other, 60)
        for _ in range(20):
            await asyncio.sleep(0.001)
        assert world.started == []
        await store.release_lease("library", other)
        await eventually(lambda: world.started == ["library 1"])


async def test_readers_stop_when_the_session_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    world, store, other = SupervisedSources(), MemorySourceStore(), UUID(int=2)
    world.sources = [make_declared_source()]
    async with run_supervisor(world, store, monkeypatch) as hosts:
        await eventually(lambda: world.started == ["library 1"])
        monkeypatch.setattr("services.sources.supervisor.POLL_S", 60.0)
        store.sessions[hosts.owner].set()
        await eventually(lambda: not hosts.running_sources)
        async with store.open_session(other):
            assert await store.acquire_lease("library", other, 60), "the lease was released"


async def test_ingress_receives_source_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    world, epochs = SupervisedSources(), dict[str, int]()
    world.sources = [make_declared_source()]
    async with run_supervisor(world, MemorySourceStore(), monkeypatch, epochs):
        await eventually(lambda: world.started)
    assert epochs == {"shop/contracts": 2}
