"""Decisions about sources, and who reads which."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from anabranch.background.source_hosting import Door, Reader, SourceHosts
from anabranch.desk.sourcing import LogSources
from schemas.errors import AnabranchError, ConfigurationError, InvalidRequest, NotFound
from schemas.sources import DeclaredSource, Reset, SourceRequest, SourceSpec
from streams.codec import Codec
from streams.memory import MemoryLog
from streams.sources.memory import MemorySourceStore
from tests.callers import LOCAL, caller

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
FOLDER = {"kind": "folder", "path": "/library"}
TABLE = {"kind": "postgres", "table": "notes", "mapping": {"body": ["body"]}}
PRODUCERS = {"shop/contracts": ["acme"], "shop/shared": ["acme", "bolt"]}
TOPIC = {"kind": "debezium", "topic": "shop.notes", "mapping": {"body": ["body"]}}


class Tables:
    def __init__(self, *rows: dict[str, Any]) -> None:
        self.rows = list(rows)

    async def overview(self) -> list[dict[str, Any]]:
        return self.rows

    async def numbers(self, ce_source: str) -> bool:
        return ce_source != "nobody"


def row(takes: dict[str, Any], *, epoch: int = 1, removed: bool = False, tenant: str = "default") -> dict[str, Any]:
    spec = SourceSpec(name="crm", tenant=tenant, takes=takes).model_dump(mode="json")  # type: ignore[arg-type]
    told = {"documents": 3, "owed": 0, "unsure": 0, "passed_at": None, "status": None}
    return {"name": "crm", "spec": spec, "epoch": epoch, "resets": [], "removed": removed, "withdraw": False, **told}


async def desk(*rows: dict[str, Any], has_kafka: bool = True) -> tuple[LogSources, MemoryLog]:
    log = MemoryLog(lambda: MOMENT)
    await log.create_topics({"control": 1}, retention_ms={})

    async def ends(topic: str) -> dict[int, int]:
        return {0: 7, 1: 9}

    return LogSources(log, Codec(), Tables(*rows), ends, has_kafka, lambda: [Path("/library")], PRODUCERS, lambda: MOMENT, uuid4, heard_s=0), log


async def decided(log: MemoryLog) -> list[Any]:
    return [(await Codec().decode(stored)).data async for stored in log.read("control")]


def request(**takes: Any) -> SourceRequest:
    return SourceRequest(name="crm", takes=takes)  # type: ignore[arg-type]


async def test_a_source_that_comes_again_counts_above_its_former_self() -> None:
    sources, log = await desk(row(FOLDER, epoch=4, removed=True))
    await sources.add("default", request(**FOLDER))
    [added] = await decided(log)
    assert (added.source.name, added.epoch) == ("crm", 5)


@pytest.mark.parametrize(
    ("takes", "code"),
    [
        (TOPIC, "NEEDS_KAFKA"),
        (TABLE | {"dsn": "postgresql://me:secret@db/shop"}, "DSN_IN_REQUEST"),
        (TABLE | {"dsn": "postgresql://127.0.0.1:1/shop"}, "DSN_IN_REQUEST"),
        (TABLE | {"table": "keystore.keys"}, "FORBIDDEN_TABLE"),
        (TABLE | {"table": "anabranch.documents"}, "FORBIDDEN_TABLE"),
        (TABLE | {"table": "pg_catalog.pg_authid"}, "FORBIDDEN_TABLE"),
        ({"kind": "folder", "path": "/root/.ssh"}, "FORBIDDEN_FOLDER"),
        ({"kind": "folder", "path": "/library/../etc"}, "FORBIDDEN_FOLDER"),
        ({"kind": "folder", "path": "/library-of-others"}, "FORBIDDEN_FOLDER"),
        ({"kind": "urls", "urls": ["https://me:secret@example.org/"]}, "PASSWORD_IN_LOG"),
        ({"kind": "folder", "path": "library"}, "RELATIVE_PATH"),
    ],
)
async def test_what_must_not_or_cannot_be_read_is_refused_before_it_is_in_the_log(takes: dict[str, Any], code: str) -> None:
    sources, log = await desk(has_kafka=False)
    with pytest.raises(InvalidRequest) as refused:
        await sources.add("default", request(**takes))
    assert refused.value.code == code
    assert "secret" not in refused.value.detail
    assert await decided(log) == []


async def test_a_name_is_taken_once_and_belongs_to_its_tenant() -> None:
    sources, _ = await desk(row(FOLDER))
    with pytest.raises(InvalidRequest):
        await sources.add("default", request(**FOLDER))
    with pytest.raises(NotFound):
        await sources.get("another", "crm")
    assert await sources.find("another") == []


async def test_a_reset_begins_where_the_topic_ends_now() -> None:
    sources, log = await desk(row(TOPIC))
    assert (await sources.reset(LOCAL, "crm"))["begins"] == {0: 7, 1: 9}
    [reset] = await decided(log)
    assert reset.reset == Reset(epoch=2, begins={0: 7, 1: 9})


async def test_a_producer_that_numbers_its_changes_can_be_reset_and_an_unknown_one_not() -> None:
    sources, log = await desk()
    await sources.reset(LOCAL, "shop/contracts")
    assert [(reset.source, reset.reset.epoch) for reset in await decided(log)] == [("shop/contracts", 2)]
    with pytest.raises(NotFound):
        await sources.reset(LOCAL, "nobody")


@pytest.mark.parametrize("name", ["crm", "shop/contracts", "shop/shared", "shop/unnamed", "anabranch/source/crm", "nobody"])
async def test_admin_resets_no_source_or_producer_of_others(name: str) -> None:
    sources, log = await desk(row(TABLE, tenant="acme"))
    with pytest.raises(NotFound) as refused:
        await sources.reset(replace(caller("bolt"), role="admin"), name)
    assert refused.value.code == "NO_SUCH_SOURCE"
    assert await decided(log) == []


async def test_admin_resets_producer_that_writes_for_its_tenant_only() -> None:
    sources, log = await desk(row(TABLE, tenant="acme"))
    for name in ("crm", "shop/contracts"):
        await sources.reset(replace(caller("acme"), role="admin"), name)
    assert [(reset.source, reset.tenant) for reset in await decided(log)] == [("crm", "acme"), ("shop/contracts", "acme")]


async def test_operator_resets_no_declared_source_by_its_ce_source() -> None:
    sources, log = await desk(row(TABLE))
    with pytest.raises(NotFound):
        await sources.reset(LOCAL, "anabranch/source/crm")
    assert await decided(log) == []


@pytest.mark.parametrize("removed", [True, False])
async def test_name_of_another_tenants_source_is_refused_without_telling_whose(removed: bool) -> None:
    answers = []
    for known, request_of in ((row(FOLDER, tenant="acme", removed=removed), "bolt"), (row(FOLDER, tenant="bolt"), "bolt")):
        sources, log = await desk(known)
        with pytest.raises(InvalidRequest) as refused:
            await sources.add(request_of, request(**FOLDER))
        answers.append((refused.value.code, refused.value.detail, refused.value.remedy))
        assert await decided(log) == []
    assert answers[0] == answers[1] and "acme" not in str(answers[0])


def test_a_record_belongs_to_the_epoch_that_had_begun_at_its_place() -> None:
    spec = SourceSpec(name="crm", takes=TOPIC)  # type: ignore[arg-type]
    declared = DeclaredSource(spec, 5, (Reset(epoch=4, begins={0: 10, 1: 20}), Reset(epoch=5, begins={0: 30, 1: 20})))
    assert [declared.epoch_at(0, offset) for offset in (9, 10, 29, 30)] == [3, 4, 4, 5]
    assert [declared.epoch_at(partition, 25) for partition in (1, 2)] == [5, 5]


class World:
    """Readers that note when they run, and fail as they are told."""

    def __init__(self) -> None:
        self.sources: list[DeclaredSource] = []
        self.started: list[str] = []
        self.closed: list[str] = []
        self.error: AnabranchError | None = None
        self.changed = asyncio.Event()

    async def declared(self) -> list[DeclaredSource]:
        return self.sources

    async def epochs(self) -> dict[str, int]:
        return {"shop/contracts": 2}

    @asynccontextmanager
    async def open(self, source: DeclaredSource) -> AsyncIterator[Reader]:
        yield Running(self, source)

    async def caught_up(self, source: DeclaredSource) -> None:
        """There is nothing to wait for."""

    async def close_down(self, source: DeclaredSource) -> None:
        self.closed.append(source.spec.name)
        self.changed.set()


class Running:
    def __init__(self, world: World, source: DeclaredSource) -> None:
        self.world, self.source = world, source

    async def run(self) -> None:
        self.world.started.append(f"{self.source.spec.name} {self.source.epoch}")
        self.world.changed.set()
        if self.world.error:
            raise self.world.error
        await asyncio.Event().wait()


@asynccontextmanager
async def hosted(world: World, store: MemorySourceStore, monkeypatch: pytest.MonkeyPatch, door: Door | None = None) -> AsyncIterator[SourceHosts]:
    for name in ("LOOK_S", "AGAIN_S"):
        monkeypatch.setattr(f"anabranch.background.source_hosting.{name}", 0.001)
    hosts = SourceHosts(world, store, world.open, world.caught_up, world.close_down, UUID(int=1), door or Door())
    running = asyncio.create_task(hosts.run())
    try:
        async with asyncio.timeout(10):
            yield hosts
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def until(world: World, holds: Any) -> None:
    while not holds():
        world.changed.clear()
        await asyncio.wait_for(world.changed.wait(), 10)


def declared(epoch: int = 1, *, removed: bool = False) -> DeclaredSource:
    return DeclaredSource(SourceSpec(name="library", takes=FOLDER), epoch, removed=removed)  # type: ignore[arg-type]


async def test_a_reader_begins_anew_with_its_source_and_ends_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    world, store = World(), MemorySourceStore()
    async with hosted(world, store, monkeypatch):
        for epoch in (1, 2):
            world.sources = [declared(epoch)]
            await until(world, lambda epoch=epoch: f"library {epoch}" in world.started)
        world.sources = [declared(2, removed=True)]
        await until(world, lambda: world.closed == ["library"])
    assert world.started == ["library 1", "library 2"]
    assert await store.hold("library", UUID(int=2), 60), "what ended holds nothing back"


async def test_a_source_that_fails_says_why_and_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world, store = World(), MemorySourceStore()
    world.sources, world.error = [declared()], ConfigurationError("there is no folder", code="FOLDER_MISSING", remedy="Make it.")
    async with hosted(world, store, monkeypatch):
        await until(world, lambda: len(world.started) >= 2)
    assert (await store.notes("library"))["status"] == {"state": "failed", "code": "FOLDER_MISSING", "detail": "there is no folder", "remedy": "Make it."}


async def test_a_source_that_another_worker_holds_is_left_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    world, store = World(), MemorySourceStore()
    world.sources = [declared()]
    await store.hold("library", UUID(int=2), 60)
    async with hosted(world, store, monkeypatch):
        for _ in range(20):
            await asyncio.sleep(0.001)
        assert world.started == []
        await store.release("library", UUID(int=2))
        await until(world, lambda: world.started == ["library 1"])


async def test_ingress_learns_the_epochs_of_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    world, door = World(), Door()
    world.sources = [declared()]
    async with hosted(world, MemorySourceStore(), monkeypatch, door):
        await until(world, lambda: world.started)
    assert door.epochs == {"shop/contracts": 2}
