"""Erasing while other things are under way: uploads of the same document, builds, replays, comparisons, and a worker that is killed."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from anabranch.approvals import approve
from anabranch.composition.overrides import Overrides, now
from anabranch.desk.erasures import LogErasures
from anabranch.desk.rebuilding import Reindexing, start_rebuild
from anabranch.settings import Settings
from engines.embed.null import NullEmbedder
from schemas.ports.engines import File, ParsePlan
from sql.builds import PgBuilds
from sql.receipts import PgReceipts
from sql.residue import residue
from sql.switching import switch
from tests.both_logs import on_both_logs
from tests.canaries import in_files, in_tables
from tests.integration.mortals import SESSION_S, House, housed
from tests.journey.conftest import ENDED, PATIENCE_S, World, running
from tests.journey.test_erasure import CANARY, HEAD, OTHER, TEXT, erase
from tests.property.world import LineParser

WORDS = (CANARY, HEAD)
CLEAR = {"raw", "outcomes"}
HELD = "held"


async def until(true: Callable[[], Awaitable[Any]]) -> Any:
    async with asyncio.timeout(PATIENCE_S):
        while not (found := await true()):
            await asyncio.sleep(0.02)
    return found


async def requested(world: World, document: str) -> str:
    response = await world.http.post("/v1/erasures", json={"scope": "document", "name": document})
    assert response.status_code == 202, response.text
    return str(response.json()["receipt_id"])


async def is_done(world: World, receipt: str) -> bool:
    response = await world.http.get(f"/v1/erasures/{receipt}")
    return response.status_code == 200 and response.json()["state"] == "done"


async def ended(world: World, job: str) -> bool:
    """Also where it was erased with its document."""
    response = await world.http.get(f"/v1/ingest/status/{job}")
    return response.status_code == 404 or response.json()["state"] in ENDED


@on_both_logs
async def test_an_upload_meanwhile_is_erased_with_it_or_begins_another_life_and_none_is_left_half_way(world: World) -> None:
    first = await world.searchable(TEXT, f"{HEAD}.md", external_id=HEAD)
    await world.searchable(OTHER, external_id="lights")
    receipt = await requested(world, first["document_id"])
    jobs = []
    while not await is_done(world, receipt):
        if len(jobs) < 30:
            jobs.append((await world.ingest(TEXT, f"{HEAD}.md", external_id=HEAD))["ingestion_job_id"])
        await asyncio.sleep(0.1)
    assert jobs
    for job in jobs:
        await until(lambda job=job: ended(world, job))
    found = await world.http.get(f"/v1/documents/{first['document_id']}")
    if found.status_code == 200 and found.json()["state"] == "searchable":
        assert (await world.http.get(f"/v1/documents/{first['document_id']}/file")).text == TEXT
        assert first["document_id"] in {result["document_id"] for result in await world.search(CANARY)}
    assert await world.worker.storage.pool.fetchval("select count(*) from dead_letters") == 0
    if found.status_code == 200:
        await erase(world, "document", first["document_id"])
    assert await in_tables(world.worker.storage.pool, WORDS) <= CLEAR
    assert in_files(world.settings.data_dir, WORDS) == set()
    await world.searchable(TEXT, external_id=HEAD)
    assert first["document_id"] in {result["document_id"] for result in await world.search(CANARY)}


@on_both_logs
async def test_what_was_sent_to_a_collection_before_the_request_goes_with_it_though_no_stage_has_come_to_it(world: World) -> None:
    await world.searchable(TEXT, external_id=HEAD, collection="birds")
    pool = world.worker.storage.pool
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute("lock table documents in share mode")
        waiting = await world.ingest(f"{TEXT} And another.", external_id=f"{HEAD}-2", collection="birds")
        response = await world.http.post("/v1/erasures", json={"scope": "collection", "name": "birds"})
        await asyncio.sleep(1.0)  # in which the documents were looked for
    await until(lambda: is_done(world, response.json()["receipt_id"]))
    assert (await world.http.get(f"/v1/documents/{waiting['document_id']}")).status_code == 404
    assert await in_tables(pool, WORDS) <= CLEAR
    assert in_files(world.settings.data_dir, WORDS) == set()


class HeldParser(LineParser):
    """Does not come back with what begins with `HELD` before it may."""

    def __init__(self) -> None:
        self.reached, self.may = asyncio.Event(), asyncio.Event()

    async def parse(self, file: File, plan: ParsePlan, part: str) -> bytes:
        if file.path.read_bytes().startswith(HELD.encode()):
            self.reached.set()
            await self.may.wait()
        return await super().parse(file, plan, part)


@on_both_logs
async def test_a_document_is_withdrawn_while_an_engine_is_still_at_another_and_at_a_revision_of_its_own(settings: Settings, database: str) -> None:
    parser = HeldParser()
    async with running(settings, database, Overrides(parser=parser, embedder=NullEmbedder(64, 16))) as world:
        gone = await world.searchable(TEXT, external_id=HEAD)
        await world.ingest(f"{HELD} {OTHER}", external_id="lights")
        await parser.reached.wait()
        parser.reached.clear()
        await world.ingest(f"{HELD} {TEXT}", external_id=HEAD)
        await parser.reached.wait()
        receipt = await requested(world, gone["document_id"])

        async def withdrawn() -> bool:
            found = await world.http.get(f"/v1/documents/{gone['document_id']}")
            return found.status_code == 404 or found.json()["state"] == "withdrawn"

        await until(withdrawn)
        assert not parser.may.is_set() and not await world.search("weir of Marlow")
        parser.may.set()
        await until(lambda: is_done(world, receipt))
        assert await in_tables(world.worker.storage.pool, WORDS) <= CLEAR
        assert in_files(settings.data_dir, WORDS) == set()


@pytest.mark.parametrize(
    ("log_kind", "paused"), [("postgres", False), ("postgres", True), pytest.param("kafka", False, marks=pytest.mark.kafka)], indirect=["log_kind"]
)
async def test_a_build_under_way_does_not_keep_what_is_erased(world: World, paused: bool) -> None:
    gone = [await world.searchable(f"{TEXT} Number {number}.", external_id=f"{HEAD}-{number}", collection="birds") for number in range(8)]
    stays = await world.searchable(OTHER, external_id="lights")
    storage, decisions = world.worker.storage, world.worker.builder.decisions
    name = await start_rebuild(storage, decisions, keep=True)
    builds = PgBuilds(storage.pool)
    await builds.set_pace(name, {"events_per_second": 4.0})

    async def begun() -> bool:
        return bool(await storage.pool.fetchval("select count(*) from child_chunks where generation = $1", name))

    await until(begun)
    if paused:
        await builds.set_pace(name, {"paused": True})
    else:
        await builds.set_pace(name, {"events_per_second": None})
    receipt = await erase(world, "collection", "birds")
    assert receipt["documents"] == len(gone)
    assert await in_tables(storage.pool, WORDS) <= CLEAR
    if paused:
        await builds.set_pace(name, {"paused": False, "events_per_second": None})

    async def live() -> bool:
        return bool(await storage.pool.fetchval("select name from live_generation") == name)

    await until(live)
    assert await in_tables(storage.pool, WORDS) <= CLEAR
    assert [result["document_id"] for result in await world.search("Anna Lindqvist")] == [stays["document_id"]]
    assert set((await residue(storage.pool, settled=True)).values()) == {0}


async def test_what_a_source_keeps_sending_is_erased_while_another_index_is_built(world: World, tmp_path: Path) -> None:
    """Each version of the file that comes before the keys are gone is erased, and one that comes later is another life's, in every generation."""
    storage, folder = world.worker.storage, tmp_path / "letters"
    folder.mkdir()
    (folder / f"{HEAD}.md").write_text(TEXT)
    (folder / "lights.md").write_text(OTHER)
    takes = {"kind": "folder", "path": str(folder), "every_s": 0.1}
    approve(world.settings.data_dir, "folders", [str(folder)])
    assert (await world.http.post("/v1/sources", json={"name": "letters", "takes": takes})).status_code == 202

    async def there() -> str | None:
        shown = "select d.id from documents d join visible v on v.document_id = d.id where d.external_id = $1"
        found = await storage.pool.fetchval(shown, f"{HEAD}.md")
        return found and str(found)

    async def writing() -> None:
        number = 0
        while True:
            number += 1
            (folder / "draft").write_text(f"{TEXT} Version {number}.")
            (folder / "draft").replace(folder / f"{HEAD}.md")
            await asyncio.sleep(0.2)

    gone = await until(there)
    desk = Reindexing(world.settings, storage, world.worker.builder.decisions, world.worker.hosting.overrides)
    name, _ = await desk.start(["chunk.strategy=fixed_size", "chunk.child_tokens=32"], events_per_second=30.0)
    keeps_sending = asyncio.create_task(writing())
    try:
        receipt = await erase(world, "document", gone)
    finally:
        keeps_sending.cancel()
    assert receipt["state"] == "done"
    (folder / f"{HEAD}.md").unlink()
    await desk.pace(name, {"events_per_second": None})

    async def built() -> bool:
        return bool(await storage.pool.fetchval("select state = 'shadow' from generations where name = $1", name)) and not await there()

    await until(built)
    again = await erase(world, "document", gone)
    assert again["state"] == "done"
    assert await in_tables(storage.pool, [CANARY]) <= CLEAR
    assert in_files(world.settings.data_dir, [CANARY]) == set()
    assert set((await residue(storage.pool, settled=True)).values()) == {0}
    assert (await switch(storage.pool, name, world.worker.builder.decisions.promoted)).moved
    assert not await there() and await world.search("Anna Lindqvist")


@on_both_logs
async def test_a_replay_under_way_does_not_bring_back_what_is_erased(world: World) -> None:
    for number in range(6):
        await world.searchable(f"{TEXT} Number {number}.", external_id=f"{HEAD}-{number}", collection="birds")
    await world.searchable(OTHER, external_id="lights")
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
        await until(lambda replay=replay: over(replay))
    pool = world.worker.storage.pool
    assert await in_tables(pool, WORDS) <= CLEAR
    assert in_files(world.settings.data_dir, WORDS) == set()
    assert set((await residue(pool, settled=True)).values()) == {0}


async def test_a_comparison_under_way_ends_well_and_keeps_nothing(world: World) -> None:
    gone = await world.searchable(TEXT, external_id=HEAD)
    await world.searchable(OTHER, external_id="lights")
    for number in range(8):
        await world.ask(f"Who saw {CANARY} at the weir of Marlow {number}?")
    storage, decisions = world.worker.storage, world.worker.builder.decisions
    name = await start_rebuild(storage, decisions, keep=True)

    async def live() -> bool:
        return bool(await storage.pool.fetchval("select name from live_generation") == name)

    await until(live)

    async def compare() -> int:
        return (await world.http.post("/v1/generations/compare", json={"a": "g1", "b": name})).status_code

    receipt = await requested(world, gone["document_id"])
    answers = []
    while not await is_done(world, receipt):
        answers.append(await compare())
    assert answers and set(answers) <= {200, 422}, "422: there is no question left to compare on"
    assert await in_tables(storage.pool, WORDS) <= CLEAR


AFTER = ["the keys", "the bytes", "the rows"]
"""What is gone when the worker is killed."""
GONE = {
    "the keys": "select count(*) from keystore.keys where destroyed_at is not null",
    "the bytes": "select count(*) from erasure_items where place = 'blobs'",
    "the rows": "select not exists (select from documents)",
}


@pytest.mark.parametrize(
    ("log_kind", "after"), [*(("postgres", after) for after in AFTER), pytest.param("kafka", AFTER[0], marks=pytest.mark.kafka)], indirect=["log_kind"]
)
async def test_an_erasure_whose_worker_is_killed_goes_on_with_another_and_its_receipt_is_complete(
    log_sets: list[str], database: str, tmp_path: Path, after: str
) -> None:
    kafka = [*log_sets, f"kafka.session_timeout_s={SESSION_S}"] if log_sets else []
    async with housed(
        database, [f"data_dir={tmp_path / 'data'}", f"database.url={database}", "database.worker_pool=6", "logging.level=error", *kafka]
    ) as house:
        worker = await house.start()
        names = [f"{HEAD}-{number}" for number in range(5)]
        await house.push({name: f"{CANARY} {name}" for name in names} | {"lights": "lighthouse"})
        await house.quiet()
        receipt = await LogErasures(house.storage, now, uuid4).request("default", "tenant", "default")

        async def gone() -> bool:
            return bool(await house.pool.fetchval(GONE[after]))

        await until(gone)
        worker.end(signal.SIGKILL)
        assert not await done(house, receipt)
        await house.start()
        found = await until(lambda: done(house, receipt))
        assert found["documents"] == found["removed"]["documents"] == 6
        assert found["removed"]["keys"] == 6 and found["removed"]["blobs"] >= 6
        assert await in_tables(house.pool, WORDS) <= CLEAR
        assert await house.pool.fetchval("select count(*) from documents") == 0


async def done(house: House, receipt: Any) -> dict[str, Any] | None:
    found = await PgReceipts(house.pool).find("default", receipt)
    return dict(found) if found is not None and found["completed_at"] is not None else None
