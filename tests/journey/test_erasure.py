"""Erasing for good: after it a canary is found nowhere, and what stays can be rebuilt and asked as before."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from anabranch.composition.overrides import Overrides
from anabranch.settings import Settings
from anabranch.settings_loading import load_settings
from sql.pool import Connection, close_pool, open_pool
from tests.journey.conftest import PATIENCE_S, World, running

CANARY = "Quetzalcoatlus"
HEAD = "x7canary"
TEXT = (
    f"# The {HEAD} report\n\n{CANARY} Northropi was seen at the weir of Marlow on 3 May 2021. Anna Lindqvist of {CANARY} Limited paid EUR 4,200 for the watch."
)
OTHER = "# Of lighthouses\n\nThe lighthouse of Skerryvore was built by Alan Stevenson. Anna Lindqvist visited it in 1999."
DOOR = ("raw",)
"""Topics of foreign producers: their retention ends what they hold."""


async def erase(world: World, scope: str, name: str) -> dict[str, Any]:
    response = await world.http.post("/v1/erasures", json={"scope": scope, "name": name})
    assert response.status_code == 202, response.text
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found = await world.http.get(f"/v1/erasures/{response.json()['receipt_id']}")
            if found.status_code == 200 and found.json()["state"] == "done":
                return dict(found.json())
            await asyncio.sleep(0.05)


async def tables(connection: Connection) -> list[str]:
    query = "select format('%I.%I', schemaname, tablename) as name from pg_tables where schemaname in ('anabranch', 'keystore') order by 1"
    return [row["name"] for row in await connection.fetch(query)]


async def places(dsn: str, folder: Path, canaries: Iterable[str]) -> set[str]:
    """Tables and blobs in which one of the canaries is found, in any case of its letters. Of the log's table, topics."""
    pool = await open_pool(dsn, size=1, name="test")
    try:
        async with pool.acquire() as connection:
            found = set()
            for canary in canaries:
                for table in await tables(connection):
                    kind = "coalesce(topic, '')" if table == "anabranch.events" else f"'{table}'"
                    text = "encode(coalesce(value, ''), 'escape') || headers::text" if table == "anabranch.events" else "t::text"
                    rows = await connection.fetch(f"select distinct {kind} as place from {table} t where strpos(lower({text}), lower($1)) > 0", canary)
                    found |= {row["place"] for row in rows}
    finally:
        await close_pool(pool)
    blobs = [path for path in (folder / "blobs").rglob("*") if path.is_file()]
    return found | {str(path.relative_to(folder)) for path in blobs for canary in canaries if canary.lower().encode() in path.read_bytes().lower()}


@pytest.mark.parametrize("scope", ["document", "collection"])
async def test_erasure_of_something_never_seen_is_not_found(world: World, scope: str) -> None:
    await world.searchable(OTHER, external_id="lights")
    run = (await world.ask("Who built the lighthouse of Skerryvore?"))["run_id"]
    async with asyncio.timeout(PATIENCE_S):
        while (await world.http.get(f"/v1/runs/{run}")).status_code != 200:
            await asyncio.sleep(0.02)
    for name in (run, str(UUID(int=0))):
        response = await world.http.post("/v1/erasures", json={"scope": scope, "name": name})
        assert (response.status_code, response.json()["code"]) == (404, "NOT_FOUND"), name


async def test_an_erased_document_is_found_nowhere_and_the_rest_answers_as_before(world: World, settings: Settings, database: str) -> None:
    gone = await world.searchable(TEXT, f"{HEAD}.md", external_id=f"{HEAD}-1", title=f"A {HEAD} title")
    stays = await world.searchable(OTHER, external_id="lights")
    answer = await world.ask(f"Who saw {CANARY} at the weir of Marlow?")
    assert any(citation["document_id"] == gone["document_id"] for citation in answer["citations"])
    await world.http.post("/v1/feedback", json={"run_id": answer["run_id"], "useful": True, "corrected_answer": f"It was {CANARY}."})
    before = await places(database, settings.data_dir, [CANARY, HEAD])
    assert {"anabranch.child_chunks_g1", "anabranch.entity_mentions_g1", "anabranch.lexical_deltas_g1", "raw"} <= before
    assert not before & {"accepted", "ocr_done", "chunked", "entities", "embedded", "queries"}, "sealed from the start"

    receipt = await erase(world, "document", gone["document_id"])

    assert receipt["documents"] == 1
    assert receipt["removed"]["child_chunks"] >= 1 and receipt["removed"]["keys"] >= 2 and receipt["removed"]["blobs"] >= 1
    assert receipt["log"]["method"] == "keys destroyed" and receipt["log"]["events"] >= 4
    assert receipt["raw_until"] is not None
    assert await places(database, settings.data_dir, [CANARY, HEAD]) <= {*DOOR, "outcomes"}
    assert (await world.http.get(f"/v1/documents/{gone['document_id']}")).status_code == 404
    assert [result["document_id"] for result in await world.search("Anna Lindqvist")] == [stays["document_id"]]


async def test_a_question_that_was_erased_with_its_document_says_so(world: World) -> None:
    gone = await world.searchable(TEXT, external_id=HEAD)
    run = (await world.ask(f"Who saw {CANARY} at the weir of Marlow?"))["run_id"]
    await erase(world, "document", gone["document_id"])
    path = f"/v1/runs/{run}"
    for asked in (world.http.post(f"{path}/rerun"), world.http.post(f"{path}/diff", json={}), world.http.get(f"{path}/lineage")):
        refused = await asked
        assert (refused.status_code, refused.json()["code"]) == (404, "RUN_ERASED"), refused.text
        assert CANARY not in refused.text


async def test_sent_again_it_begins_a_new_life(world: World) -> None:
    first = await world.searchable(TEXT, external_id="again")
    await erase(world, "document", first["document_id"])
    second = await world.searchable(TEXT, external_id="again")
    assert second["document_id"] == first["document_id"]
    assert [result["document_id"] for result in await world.search(CANARY)] == [second["document_id"]]


@pytest.mark.parametrize("named", [{}, {"external_id": HEAD}], ids=["by its bytes", "by its external id"])
async def test_what_the_door_refused_is_erased_with_all_that_its_event_said(world: World, settings: Settings, database: str, named: dict[str, str]) -> None:
    gone = await world.ingest(f"%PDF-1.7\n{CANARY}", f"{HEAD}.pdf", title=f"The {HEAD} report", **named)
    assert (await world.ended(gone))["state"] == "failed"
    assert "anabranch.dead_letters" in await places(database, settings.data_dir, [HEAD])
    assert (await erase(world, "document", gone["document_id"]))["removed"]["dead_letters"] == 1
    assert await places(database, settings.data_dir, [CANARY, HEAD]) <= {*DOOR, "outcomes"}
    assert (await world.http.get(f"/v1/documents/{gone['document_id']}")).status_code == 404
    assert (await world.http.get("/v1/dead-letters")).json()["items"] == []


async def test_a_collection_goes_and_another_stays(world: World) -> None:
    for number in range(3):
        await world.searchable(f"{CANARY} number {number} sleeps.", external_id=f"c{number}", collection="birds")
    stays = await world.searchable(OTHER, external_id="lights", collection="towers")
    receipt = await erase(world, "collection", "birds")
    assert receipt["documents"] == 3
    listed = (await world.http.get("/v1/documents")).json()["items"]
    assert [item["document_id"] for item in listed] == [stays["document_id"]]


async def test_a_document_is_named_by_its_id_however_that_is_written(world: World) -> None:
    gone = await world.searchable(TEXT)
    assert (await erase(world, "document", gone["document_id"].upper()))["documents"] == 1
    assert (await world.http.get(f"/v1/documents/{gone['document_id']}")).status_code == 404


async def test_an_erasure_that_was_interrupted_goes_on(settings: Settings, database: str, overrides: Overrides) -> None:
    async with running(settings, database, overrides) as world:
        gone = await world.searchable(TEXT, external_id="gone")
        response = await world.http.post("/v1/erasures", json={"scope": "document", "name": gone["document_id"]})
        receipt = response.json()["receipt_id"]
    async with running(settings, database, overrides) as world, asyncio.timeout(PATIENCE_S):
        while (found := await world.http.get(f"/v1/erasures/{receipt}")).status_code != 200 or found.json()["state"] != "done":
            await asyncio.sleep(0.05)
        assert found.json()["documents"] <= 1
        assert await places(database, settings.data_dir, [CANARY]) <= set(DOOR)


@pytest.mark.parametrize(
    ("scope", "name", "status"), [("document", "11111111-1111-8111-8111-111111111111", 404), ("collection", "nobody", 404), ("tenant", "another", 422), ("planet", "x", 422)]
)  # fmt: skip
async def test_what_is_not_there_or_not_ones_own_is_refused(world: World, scope: str, name: str, status: int) -> None:
    assert (await world.http.post("/v1/erasures", json={"scope": scope, "name": name})).status_code == status


async def test_a_tenant_that_keeps_its_events_readable_is_told_what_remains(tmp_path: Path, database: str, overrides: Overrides) -> None:
    settings = load_settings(data_dir=tmp_path / "data", sets=["logging.level=error", "log.plain_tenants=default"])
    async with running(settings, database, overrides) as world:
        gone = await world.searchable(TEXT, external_id="gone")
        assert "accepted" not in await places(database, settings.data_dir, [CANARY]) and "ocr_done" in await places(database, settings.data_dir, [CANARY])
        receipt = await erase(world, "document", gone["document_id"])
    assert receipt["log"] == {"events": 0, "method": "nothing"}
    assert any("ocr_done" in place for place in receipt["remains"])


async def test_an_older_backup_of_the_keystore_does_not_revive_it(settings: Settings, database: str, overrides: Overrides) -> None:
    async with running(settings, database, overrides) as world:
        gone = await world.searchable(TEXT, external_id="gone")
        pool = await open_pool(database, size=1, name="test")
        backup = await pool.fetch("select * from keystore.keys")
        await erase(world, "document", gone["document_id"])
    try:
        await pool.execute("delete from keystore.keys")
        await pool.copy_records_to_table("keys", schema_name="keystore", records=backup)
        assert await pool.fetchval("select count(*) from keystore.keys where wrapped is not null") >= 1
        async with running(settings, database, overrides) as world:
            assert await pool.fetchval("select count(*) from keystore.keys where subject::text = $1 and wrapped is not null", gone["document_id"]) == 0
            assert await world.search(CANARY) == []
    finally:
        await close_pool(pool)
