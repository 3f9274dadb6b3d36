"""Erase during uploads, builds, replays, comparisons and a worker kill."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from anabranch.composition.sources import build_reindex_service
from anabranch.config.overrides import Overrides
from anabranch.config.settings import Settings
from anabranch.identity.approvals import approve
from schemas.ports.engines import LocalFile, ParsePlan
from services.erasure.service import ErasureService
from services.generations.reindex import start_rebuild
from services.publishing import EventPublisher
from sql.index.generation_switch import switch_generation
from sql.index.generations import PgGenerationBuilds
from sql.operations.erasure import PgErasure, PgErasureReceipts
from sql.operations.integrity import check_integrity
from streams import stage_chain
from tests.fakes.null_embedder import NullEmbedder
from tests.support.api_world import FINAL_STATES, ApiWorld, run_system
from tests.support.canaries import find_in_files, find_in_tables
from tests.support.erasure import (
    CANARY,
    CANARY_TEXT,
    METADATA_CANARY,
    OTHER_TEXT,
    UNENCRYPTED_TOPICS,
    erase,
)
from tests.support.eventually import eventually
from tests.support.log_backends import long_on_kafka, long_on_postgres
from tests.support.simulated_pipeline import LineParser
from tests.support.worker_group import SESSION_TIMEOUT_S, WorkerGroup, run_worker_group

CANARIES = (CANARY, METADATA_CANARY)
BLOCKING_PREFIX = "held"


async def request_erasure(world: ApiWorld, document: str) -> str:
    response = await world.http.post("/v1/erasures", json={"scope": "document", "name": document})
    assert response.status_code == 202, response.text
    return str(response.json()["receipt_id"])


async def is_done(world: ApiWorld, receipt: str) -> bool:
    response = await world.http.get(f"/v1/erasures/{receipt}")
    return response.status_code == 200 and response.json()["state"] == "done"


async def is_job_final(world: ApiWorld, job: str) -> bool:
    """Return whether the job is final, or was erased with its document."""
    response = await world.http.get(f"/v1/ingest/status/{job}")
    return response.status_code == 404 or response.json()["state"] in FINAL_STATES


@long_on_postgres
async def test_upload_during_erasure_is_erased_or_ingested_completely(world: ApiWorld) -> None:
    first = await world.ingest_until_searchable(
        CANARY_TEXT, f"{METADATA_CANARY}.md", external_id=METADATA_CANARY
    )
    await world.ingest_until_searchable(OTHER_TEXT, external_id="lights")
    receipt = await request_erasure(world, first["document_id"])
    jobs = []
    while not await is_done(world, receipt):
        if len(jobs) < 30:
            jobs.append(
                (
                    await world.ingest(
                        CANARY_TEXT, f"{METADATA_CANARY}.md", external_id=METADATA_CANARY
                    )
                )["ingestion_job_id"]
            )
        await asyncio.sleep(0.1)
    assert jobs
    for job in jobs:
        await eventually(lambda job=job: is_job_final(world, job))
    found = await world.http.get(f"/v1/documents/{first['document_id']}")
    if found.status_code == 200 and found.json()["state"] == "searchable":
        assert (
            await world.http.get(f"/v1/documents/{first['document_id']}/file")
        ).text == CANARY_TEXT
        assert first["document_id"] in {
            result["document_id"] for result in await world.search(CANARY)
        }
    assert await world.worker.storage.pool.fetchval("select count(*) from dead_letters") == 0
    if found.status_code == 200:
        await erase(world, "document", first["document_id"])
    assert await find_in_tables(world.worker.storage.pool, CANARIES) <= UNENCRYPTED_TOPICS
    assert find_in_files(world.settings.data_dir, CANARIES) == set()
    await world.ingest_until_searchable(CANARY_TEXT, external_id=METADATA_CANARY)
    assert first["document_id"] in {result["document_id"] for result in await world.search(CANARY)}


async def test_dead_letter_that_arrives_while_rows_are_deleted_leaves_no_blob(
    world: ApiWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await world.ingest_until_searchable(CANARY_TEXT, external_id=METADATA_CANARY)
    erase_rows, blobs = PgErasure.erase_rows, world.worker.storage.blobs

    async def erase_after_arrival(tables: PgErasure, *given: Any, **options: Any) -> None:
        if not arrived:
            identity = uuid4()
            record = await blobs.put(f"_dead_letters/{identity}", CANARY_TEXT.encode())
            arrived.append(identity)
            await tables._pool.execute(
                "insert into dead_letters (event_id, stage, tenant, document_id, log_topic, "
                "log_partition, log_offset, code, detail, remedy, attempts, record, "
                "dead_lettered_at) values ($1, 'receive', 'default', $2, 'raw', 0, 0, "
                "'NO_SUCH_BLOB', '', '', 1, $3, now())",
                identity,
                UUID(first["document_id"]),
                record.model_dump(mode="json"),
            )
        await erase_rows(tables, *given, **options)

    arrived: list[UUID] = []
    monkeypatch.setattr(PgErasure, "erase_rows", erase_after_arrival)
    await erase(world, "document", first["document_id"])
    assert arrived and find_in_files(world.settings.data_dir, CANARIES) == set()
    assert await world.worker.storage.pool.fetchval("select count(*) from dead_letters") == 0


@long_on_kafka
async def test_collection_erasure_includes_unprocessed_uploads(world: ApiWorld) -> None:
    await world.ingest_until_searchable(
        CANARY_TEXT, external_id=METADATA_CANARY, collection="birds"
    )
    pool = world.worker.storage.pool
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute("lock table documents in share mode")
        waiting = await world.ingest(
            f"{CANARY_TEXT} And another.", external_id=f"{METADATA_CANARY}-2", collection="birds"
        )
        response = await world.http.post(
            "/v1/erasures", json={"scope": "collection", "name": "birds"}
        )
        await asyncio.sleep(1.0)  # in which the documents were looked for
    await eventually(lambda: is_done(world, response.json()["receipt_id"]))
    assert (await world.http.get(f"/v1/documents/{waiting['document_id']}")).status_code == 404
    assert await find_in_tables(pool, CANARIES) <= UNENCRYPTED_TOPICS
    assert find_in_files(world.settings.data_dir, CANARIES) == set()


class BlockingParser(LineParser):
    """Block on documents that begin with `BLOCKING_PREFIX` until the test releases them."""

    def __init__(self) -> None:
        self.blocked_event, self.release_event = asyncio.Event(), asyncio.Event()

    async def parse(self, file: LocalFile, plan: ParsePlan, part: str) -> bytes:
        if file.path.read_bytes().startswith(BLOCKING_PREFIX.encode()):
            self.blocked_event.set()
            await self.release_event.wait()
        return await super().parse(file, plan, part)


@long_on_kafka
async def test_erasure_withdraws_document_while_parser_is_busy(
    settings: Settings, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Both documents block a chain for as long, before they take the ordinary path.
    monkeypatch.setattr(stage_chain, "DEADLINE_S", 2.0)
    parser = BlockingParser()
    async with run_system(
        settings, database, Overrides(parser=parser, embedder=NullEmbedder(64, 16))
    ) as world:
        erased = await world.ingest_until_searchable(CANARY_TEXT, external_id=METADATA_CANARY)
        await world.ingest(f"{BLOCKING_PREFIX} {OTHER_TEXT}", external_id="lights")
        await parser.blocked_event.wait()
        parser.blocked_event.clear()
        await world.ingest(f"{BLOCKING_PREFIX} {CANARY_TEXT}", external_id=METADATA_CANARY)
        await parser.blocked_event.wait()
        receipt = await request_erasure(world, erased["document_id"])

        async def withdrawn() -> bool:
            found = await world.http.get(f"/v1/documents/{erased['document_id']}")
            return found.status_code == 404 or found.json()["state"] == "withdrawn"

        await eventually(withdrawn)
        assert not parser.release_event.is_set() and not await world.search("weir of Marlow")
        parser.release_event.set()
        await eventually(lambda: is_done(world, receipt))
        assert await find_in_tables(world.worker.storage.pool, CANARIES) <= UNENCRYPTED_TOPICS
        assert find_in_files(settings.data_dir, CANARIES) == set()


@pytest.mark.parametrize(
    ("log_kind", "paused"),
    [
        pytest.param("postgres", False, marks=pytest.mark.long),
        ("postgres", True),
        pytest.param("kafka", False, marks=pytest.mark.kafka),
    ],
    indirect=["log_kind"],
)
async def test_running_build_drops_erased_documents(world: ApiWorld, paused: bool) -> None:
    erased = [
        await world.ingest_until_searchable(
            f"{CANARY_TEXT} Number {number}.",
            external_id=f"{METADATA_CANARY}-{number}",
            collection="birds",
        )
        for number in range(4)
    ]
    stays = await world.ingest_until_searchable(OTHER_TEXT, external_id="lights")
    storage, decisions = world.worker.storage, world.worker.builder.decisions
    name = await start_rebuild(storage, decisions, keep_previous=True)
    builds = PgGenerationBuilds(storage.pool)
    await builds.set_pace(name, {"events_per_second": 4.0})

    async def begun() -> bool:
        return bool(
            await storage.pool.fetchval(
                "select count(*) from child_chunks where generation = $1", name
            )
        )

    await eventually(begun)
    if paused:
        await builds.set_pace(name, {"paused": True})
    else:
        await builds.set_pace(name, {"events_per_second": None})
    receipt = await erase(world, "collection", "birds")
    assert receipt["documents"] == len(erased)
    assert await find_in_tables(storage.pool, CANARIES) <= UNENCRYPTED_TOPICS
    if paused:
        await builds.set_pace(name, {"paused": False, "events_per_second": None})

    async def live() -> bool:
        return bool(await storage.pool.fetchval("select name from live_generation") == name)

    await eventually(live)
    assert await find_in_tables(storage.pool, CANARIES) <= UNENCRYPTED_TOPICS
    assert [result["document_id"] for result in await world.search("Anna Lindqvist")] == [
        stays["document_id"]
    ]
    assert set((await check_integrity(storage.pool, assume_idle=True)).values()) == {0}


async def test_source_updates_are_erased_during_reindex(world: ApiWorld, tmp_path: Path) -> None:
    """Each version of the file that comes before the keys are gone is erased, and one that comes
    later is another life's, in every generation.
    """
    storage, folder = world.worker.storage, tmp_path / "letters"
    folder.mkdir()
    (folder / f"{METADATA_CANARY}.md").write_text(CANARY_TEXT)
    (folder / "lights.md").write_text(OTHER_TEXT)
    takes = {"kind": "folder", "path": str(folder), "every_s": 0.1}
    approve(world.settings.data_dir, "folders", [str(folder)])
    assert (
        await world.http.post("/v1/sources", json={"name": "letters", "connector": takes})
    ).status_code == 202

    async def fetch_visible_id() -> str | None:
        shown = (
            "select d.id from documents d join visible v on v.document_id = d.id "
            "where d.external_id = $1"
        )
        found = await storage.pool.fetchval(shown, f"{METADATA_CANARY}.md")
        return found and str(found)

    async def writing() -> None:
        number = 0
        while True:
            number += 1
            (folder / "draft").write_text(f"{CANARY_TEXT} Version {number}.")
            (folder / "draft").replace(folder / f"{METADATA_CANARY}.md")
            # Each version is a revision in every generation, and the erasure drains them.
            await asyncio.sleep(1.0)

    erased = await eventually(fetch_visible_id)
    desk = build_reindex_service(
        world.settings, storage, world.worker.builder.decisions, world.worker.overrides
    )
    name, _ = await desk.start_reindex(
        ["chunk.strategy=fixed_size", "chunk.child_tokens=32"], events_per_second=30.0
    )
    keeps_sending = asyncio.create_task(writing())
    try:
        receipt = await erase(world, "document", erased)
    finally:
        keeps_sending.cancel()
    assert receipt["state"] == "done"
    (folder / f"{METADATA_CANARY}.md").unlink()
    await desk.change_pace(name, {"events_per_second": None})

    async def built() -> bool:
        return (
            bool(
                await storage.pool.fetchval(
                    "select state = 'shadow' from generations where name = $1", name
                )
            )
            and not await fetch_visible_id()
        )

    await eventually(built)
    again = await erase(world, "document", erased)
    assert again["state"] == "done"
    assert await find_in_tables(storage.pool, [CANARY]) <= UNENCRYPTED_TOPICS
    assert find_in_files(world.settings.data_dir, [CANARY]) == set()
    assert set((await check_integrity(storage.pool, assume_idle=True)).values()) == {0}
    assert (
        await switch_generation(storage.pool, name, world.worker.builder.decisions.publish_promoted)
    ).has_moved
    assert not await fetch_visible_id() and await world.search("Anna Lindqvist")


@long_on_kafka
async def test_running_replay_does_not_restore_erased_documents(world: ApiWorld) -> None:
    for number in range(4):
        await world.ingest_until_searchable(
            f"{CANARY_TEXT} Number {number}.",
            external_id=f"{METADATA_CANARY}-{number}",
            collection="birds",
        )
    await world.ingest_until_searchable(OTHER_TEXT, external_id="lights")
    replays = []
    for stage in ("transcribe", "chunk", "embed", "index"):
        response = await world.http.post("/v1/replays", json={"stage": stage, "per_second": 3})
        assert response.status_code == 202, response.text
        replays.append(response.json()["replay_id"])
    await erase(world, "collection", "birds")

    async def over(replay: str) -> bool:
        return bool((await world.http.get(f"/v1/replays/{replay}")).json()["state"] == "done")

    for replay in replays:
        await world.http.post(f"/v1/replays/{replay}/resume")
        await eventually(lambda replay=replay: over(replay))
    pool = world.worker.storage.pool
    assert await find_in_tables(pool, CANARIES) <= UNENCRYPTED_TOPICS
    assert find_in_files(world.settings.data_dir, CANARIES) == set()
    assert set((await check_integrity(pool, assume_idle=True)).values()) == {0}


async def test_running_comparison_retains_no_erased_text(world: ApiWorld) -> None:
    erased = await world.ingest_until_searchable(CANARY_TEXT, external_id=METADATA_CANARY)
    await world.ingest_until_searchable(OTHER_TEXT, external_id="lights")
    for number in range(3):
        await world.ask(f"Who saw {CANARY} at the weir of Marlow {number}?")
    storage, decisions = world.worker.storage, world.worker.builder.decisions
    name = await start_rebuild(storage, decisions, keep_previous=True)

    async def live() -> bool:
        return bool(await storage.pool.fetchval("select name from live_generation") == name)

    await eventually(live)

    async def compare() -> int:
        return (
            await world.http.post("/v1/generations/compare", json={"a": "g1", "b": name})
        ).status_code

    receipt = await request_erasure(world, erased["document_id"])
    answers = []
    while not await is_done(world, receipt):
        answers.append(await compare())
    assert answers and set(answers) <= {200, 422}, "422: there is no question left to compare on"
    assert await find_in_tables(storage.pool, CANARIES) <= UNENCRYPTED_TOPICS


KILL_POINTS = ["the keys", "the bytes", "the rows"]
"""Data that is already deleted when the worker is killed."""
KILL_POINT_QUERIES = {
    "the keys": "select count(*) from keystore.keys where destroyed_at is not null",
    "the bytes": "select count(*) from erasure_items where place = 'blobs'",
    "the rows": "select not exists (select from documents)",
}
TABLES_OF_NEXT_STEP = {
    # The keys are destroyed seconds before the next step: until then processes may cache them.
    "the keys": (),
    "the bytes": ("documents",),
    "the rows": ("lexical_deltas",),
}
"""Locked until the worker is killed, so that it cannot get further."""


@pytest.mark.parametrize(
    ("log_kind", "after"),
    [
        *(("postgres", after) for after in KILL_POINTS),
        pytest.param("kafka", KILL_POINTS[0], marks=pytest.mark.kafka),
    ],
    indirect=["log_kind"],
)
async def test_erasure_of_killed_worker_completes_on_another(
    log_settings: list[str], database: str, tmp_path: Path, after: str
) -> None:
    kafka = [*log_settings, f"kafka.session_timeout_s={SESSION_TIMEOUT_S}"] if log_settings else []
    async with run_worker_group(
        database,
        [
            f"data_dir={tmp_path / 'data'}",
            f"database.url={database}",
            "database.worker_pool=6",
            "logging.level=error",
            *kafka,
        ],
    ) as house:
        worker = await house.start_worker()
        names = [f"{METADATA_CANARY}-{number}" for number in range(5)]
        await house.push_texts(
            {name: f"{CANARY} {name}" for name in names} | {"lights": "lighthouse"}
        )
        await house.wait_until_idle()
        storage = house.storage
        publisher = EventPublisher(storage.log, storage.codec)
        receipt = await ErasureService(storage.pool, publisher).request_erasure(
            "default", "tenant", "default"
        )

        async def is_gone(what: str) -> bool:
            return bool(await house.pool.fetchval(KILL_POINT_QUERIES[what]))

        await eventually(lambda: is_gone("the keys"))
        async with house.pool.acquire() as connection, connection.transaction():
            for table in TABLES_OF_NEXT_STEP[after]:
                await connection.execute(f"lock table {table} in share mode")
            await eventually(lambda: is_gone(after))
            worker.stop(signal.SIGKILL)
        assert not await find_completed_receipt(house, receipt)
        await house.start_worker()
        found = await eventually(lambda: find_completed_receipt(house, receipt))
        assert found["documents"] == found["removed"]["documents"] == 6
        assert found["removed"]["keys"] == 6 and found["removed"]["blobs"] >= 6
        assert await find_in_tables(house.pool, CANARIES) <= UNENCRYPTED_TOPICS
        assert await house.pool.fetchval("select count(*) from documents") == 0


async def find_completed_receipt(worker_group: WorkerGroup, receipt: Any) -> dict[str, Any] | None:
    found = await PgErasureReceipts(worker_group.pool).find("default", receipt)
    return dict(found) if found is not None and found["completed_at"] is not None else None
