"""Erased text is found nowhere, and the remaining documents stay searchable."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from uuid import UUID

import pytest

from anabranch.config.loader import load_settings
from anabranch.config.overrides import Overrides
from anabranch.config.settings import Settings
from schemas.errors import DataErased
from sql.database import Connection, close_pool, open_pool, use_pool
from tests.support.api_world import ApiWorld, run_system
from tests.support.erasure import (
    CANARY,
    CANARY_TEXT,
    METADATA_CANARY,
    OTHER_TEXT,
    append_clear_alias,
    erase,
    ingest_canary,
    wait_until_erased,
)
from tests.support.eventually import eventually

RAW_TOPICS = ("raw",)
"""Topics of foreign producers: their retention ends what they hold."""


async def list_tables(connection: Connection) -> list[str]:
    query = (
        "select format('%I.%I', schemaname, tablename) as name from pg_tables "
        "where schemaname in ('anabranch', 'keystore') order by 1"
    )
    return [row["name"] for row in await connection.fetch(query)]


async def find_canaries(dsn: str, folder: Path, canaries: Iterable[str]) -> set[str]:
    """Find the tables, log topics and blobs that contain a canary, ignoring case."""
    async with use_pool(dsn, size=1, name="test") as pool, pool.acquire() as connection:
        found = set()
        for canary in canaries:
            for table in await list_tables(connection):
                kind = "coalesce(topic, '')" if table == "anabranch.events" else f"'{table}'"
                text = (
                    "encode(coalesce(value, ''), 'escape') || headers::text"
                    if table == "anabranch.events"
                    else "t::text"
                )
                rows = await connection.fetch(
                    f"select distinct {kind} as place from {table} t "
                    f"where strpos(lower({text}), lower($1)) > 0",
                    canary,
                )
                found |= {row["place"] for row in rows}
    blobs = [path for path in (folder / "blobs").rglob("*") if path.is_file()]
    return found | {
        str(path.relative_to(folder))
        for path in blobs
        for canary in canaries
        if canary.lower().encode() in path.read_bytes().lower()
    }


@pytest.mark.parametrize("scope", ["document", "collection"])
async def test_erasure_of_unknown_name_returns_404(world: ApiWorld, scope: str) -> None:
    await world.ingest_until_searchable(OTHER_TEXT, external_id="lights")
    run = (await world.ask("Who built the lighthouse of Skerryvore?"))["run_id"]
    await eventually(lambda: world.fetch_json(f"/v1/runs/{run}"))
    for name in (run, str(UUID(int=0))):
        response = await world.http.post("/v1/erasures", json={"scope": scope, "name": name})
        assert (response.status_code, response.json()["code"]) == (404, "NOT_FOUND"), name


async def test_erased_document_is_found_nowhere(
    world: ApiWorld, settings: Settings, database: str
) -> None:
    erased = await ingest_canary(world)
    stays = await world.ingest_until_searchable(OTHER_TEXT, external_id="lights")
    answer = await world.ask(f"Who saw {CANARY} at the weir of Marlow?")
    assert any(citation["document_id"] == erased["document_id"] for citation in answer["citations"])
    await world.http.post(
        "/v1/feedback",
        json={"run_id": answer["run_id"], "useful": True, "corrected_answer": f"It was {CANARY}."},
    )
    before = await find_canaries(database, settings.data_dir, [CANARY, METADATA_CANARY])
    assert {
        "anabranch.child_chunks_g1",
        "anabranch.entity_mentions",
        "anabranch.entity_mentions_g1",
        "anabranch.lexical_deltas_g1",
        "raw",
    } <= before
    assert not before & {"accepted", "ocr_done", "chunked", "entities", "embedded", "queries"}, (
        "sealed from the start"
    )

    receipt = await erase(world, "document", erased["document_id"])

    assert receipt["documents"] == 1
    assert (
        receipt["removed"]["child_chunks"] >= 1
        and receipt["removed"]["keys"] >= 2
        and receipt["removed"]["blobs"] >= 1
    )
    assert receipt["log"]["method"] == "keys destroyed" and receipt["log"]["events"] >= 4
    assert receipt["raw_until"] is not None
    assert await find_canaries(database, settings.data_dir, [CANARY, METADATA_CANARY]) <= {
        *RAW_TOPICS,
        "outcomes",
    }
    assert (await world.http.get(f"/v1/documents/{erased['document_id']}")).status_code == 404
    assert [result["document_id"] for result in await world.search("Anna Lindqvist")] == [
        stays["document_id"]
    ]


async def test_erased_run_returns_run_erased(world: ApiWorld) -> None:
    erased = await world.ingest_until_searchable(CANARY_TEXT, external_id=METADATA_CANARY)
    run = (await world.ask(f"Who saw {CANARY} at the weir of Marlow?"))["run_id"]
    await erase(world, "document", erased["document_id"])
    path = f"/v1/runs/{run}"
    for request in (
        world.http.post(f"{path}/rerun"),
        world.http.post(f"{path}/diff", json={}),
        world.http.get(f"{path}/lineage"),
    ):
        refused = await request
        assert (refused.status_code, refused.json()["code"]) == (404, "RUN_ERASED"), refused.text
        assert CANARY not in refused.text


async def test_erased_fact_is_found_nowhere(
    world: ApiWorld, settings: Settings, database: str
) -> None:
    document = await world.ingest_until_searchable(OTHER_TEXT, external_id="lights")
    question, fact_ids = "Who is the contact for plant 3?", []
    for subject, object_ in (("contact", CANARY), ("deputy contact", "Bruno")):
        fact = {"subject": f"The {subject} for plant 3", "predicate": "is", "object": object_}
        proposed = await world.http.post("/v1/facts", json={**fact, "source": f"{object_} Ltd"})
        fact_ids.append(proposed.json()["fact_id"])
        await world.http.post(f"/v1/facts/{fact_ids[-1]}/approve")
    erased, kept = fact_ids
    run = await eventually(lambda: world.ask(question), lambda answer: len(answer["facts"]) == 2)
    await eventually(
        lambda: world.fetch_json(f"/v1/runs/{run['run_id']}"),
        lambda row: row is not None and row["response"] is not None,
    )
    # Only projections hold it: the log is sealed.
    assert await find_canaries(database, settings.data_dir, [CANARY]) == {
        "anabranch.facts",
        "anabranch.runs",
    }
    # A fact is no document.
    other = await world.http.post("/v1/erasures", json={"scope": "document", "name": erased})
    assert other.status_code == 404

    accepted = await world.http.delete(f"/v1/facts/{erased}")
    assert accepted.status_code == 202, accepted.text
    receipt = await wait_until_erased(world, accepted.json()["receipt_id"])

    assert receipt["documents"] == 0 and receipt["removed"]["facts"] == 1
    assert not any("topic raw" in remaining for remaining in receipt["remains"])
    # It was proposed, approved and retracted.
    assert receipt["log"] == {"events": 3, "method": "keys destroyed"}
    assert receipt["removed"]["keys"] >= 2 and receipt["removed"]["runs"] >= 1
    assert await find_canaries(database, settings.data_dir, [CANARY]) == set()
    assert (await world.http.get(f"/v1/facts/{erased}")).status_code == 404
    assert (await world.http.get(f"/v1/documents/{document['document_id']}")).status_code == 200
    rerun = await world.http.post(f"/v1/runs/{run['run_id']}/rerun")
    assert rerun.json()["code"] == "RUN_ERASED"
    assert [fact["fact_id"] for fact in (await world.ask(question))["facts"]] == [kept]


async def test_receipt_of_last_document_of_an_entity_names_its_aliases(world: ApiWorld) -> None:
    receipt = await world.ingest_until_searchable(OTHER_TEXT, external_id="lights")
    page = await eventually(lambda: world.fetch_json("/v1/entities"), lambda page: page["items"])
    for entity in page["items"]:
        change = {"add_aliases": [f"the {entity['id']}"]}
        amended = await world.http.patch(f"/v1/entities/{entity['id']}", json=change)
        assert amended.json()["status"] == "applied", amended.text
    erased = await erase(world, "document", receipt["document_id"])
    expected = f"entity aliases: {len(page['items'])} that people gave"
    assert [place for place in erased["remains"] if place.startswith(expected)]


async def test_aliases_are_found_nowhere_after_erasure_of_their_tenant(
    world: ApiWorld, settings: Settings, database: str
) -> None:
    await world.ingest_until_searchable(OTHER_TEXT, external_id="lights")
    page = await eventually(lambda: world.fetch_json("/v1/entities"), lambda page: page["items"])
    entity = page["items"][0]["id"]
    for change in (
        {"add_aliases": [CANARY, f"the {METADATA_CANARY}"]},
        {"remove_aliases": [f"the {METADATA_CANARY}"]},
        {"type": CANARY},
    ):
        amended = await world.http.patch(f"/v1/entities/{entity}", json=change)
        assert amended.json()["status"] == "applied", amended.text
    canaries = [CANARY, METADATA_CANARY]
    assert await find_canaries(database, settings.data_dir, canaries) == {
        "anabranch.entity_aliases",
        "anabranch.entity_corrections",
        "anabranch.entity_mentions",
        "anabranch.entity_mentions_g1",
    }
    # An entity is no document, although its aliases have a key.
    other = await world.http.post("/v1/erasures", json={"scope": "document", "name": entity})
    assert other.status_code == 404

    receipt = await erase(world, "tenant", "default")

    assert receipt["documents"] == 1 and receipt["removed"]["entity_aliases"] == 2
    assert receipt["removed"]["entity_corrections"] == 1
    assert await find_canaries(database, settings.data_dir, canaries) == set()
    storage = world.worker.storage
    amendments = [
        record
        async for record in storage.log.read("control")
        if record.record.headers["ce_type"].startswith(b"entity.")
    ]
    assert len(amendments) == 3
    for record in amendments:
        with pytest.raises(DataErased):
            await storage.codec.decode(record)
    feed = await world.fetch_json("/v1/events", topics="control", after="begin", limit=200)
    assert not any(canary in str(feed) for canary in canaries)


async def test_aliases_of_an_earlier_version_are_sealed_and_erased_with_their_tenant(
    world: ApiWorld, settings: Settings, database: str
) -> None:
    await world.ingest_until_searchable(OTHER_TEXT, external_id="lights")
    storage = world.worker.storage
    await append_clear_alias(storage, "default", CANARY)
    await append_clear_alias(storage, "other", METADATA_CANARY)
    await eventually(
        lambda: find_canaries(database, settings.data_dir, [CANARY, METADATA_CANARY]),
        lambda found: "anabranch.entity_aliases" in found,
    )

    receipt = await erase(world, "tenant", "default")

    assert receipt["removed"]["entity_aliases"] == 1
    assert not any("unsealed" in remains for remains in receipt["remains"])
    assert await find_canaries(database, settings.data_dir, [CANARY]) == set()
    assert "control" in await find_canaries(database, settings.data_dir, [METADATA_CANARY])
    erased, other = [
        record
        async for record in storage.log.read("control")
        if record.record.headers["ce_type"] == b"entity.amended.v1"
    ]
    with pytest.raises(DataErased):
        await storage.codec.decode(erased)
    assert (await storage.codec.decode(other)).data.add_aliases == [METADATA_CANARY]


async def test_erased_document_can_be_ingested_again(world: ApiWorld) -> None:
    first = await world.ingest_until_searchable(CANARY_TEXT, external_id="again")
    await erase(world, "document", first["document_id"])
    second = await world.ingest_until_searchable(CANARY_TEXT, external_id="again")
    assert second["document_id"] == first["document_id"]
    assert [result["document_id"] for result in await world.search(CANARY)] == [
        second["document_id"]
    ]


@pytest.mark.parametrize(
    "named", [{}, {"external_id": METADATA_CANARY}], ids=["by its bytes", "by its external id"]
)
async def test_document_rejected_at_ingress_is_erased(
    world: ApiWorld, settings: Settings, database: str, named: dict[str, str]
) -> None:
    erased = await world.ingest(
        f"%PDF-1.7\n{CANARY}",
        f"{METADATA_CANARY}.pdf",
        title=f"The {METADATA_CANARY} report",
        **named,
    )
    assert (await world.wait_until_final(erased))["state"] == "failed"
    assert "anabranch.dead_letters" in await find_canaries(
        database, settings.data_dir, [METADATA_CANARY]
    )
    assert (await erase(world, "document", erased["document_id"]))["removed"]["dead_letters"] == 1
    assert await find_canaries(database, settings.data_dir, [CANARY, METADATA_CANARY]) <= {
        *RAW_TOPICS,
        "outcomes",
    }
    assert (await world.http.get(f"/v1/documents/{erased['document_id']}")).status_code == 404
    assert (await world.http.get("/v1/dead-letters")).json()["items"] == []


async def test_collection_erasure_keeps_other_collections(world: ApiWorld) -> None:
    for number in range(3):
        await world.ingest_until_searchable(
            f"{CANARY} number {number} sleeps.", external_id=f"c{number}", collection="birds"
        )
    stays = await world.ingest_until_searchable(
        OTHER_TEXT, external_id="lights", collection="towers"
    )
    receipt = await erase(world, "collection", "birds")
    assert receipt["documents"] == 3
    listed = (await world.http.get("/v1/documents")).json()["items"]
    assert [item["document_id"] for item in listed] == [stays["document_id"]]


async def test_document_id_in_upper_case_is_accepted(world: ApiWorld) -> None:
    erased = await world.ingest_until_searchable(CANARY_TEXT)
    assert (await erase(world, "document", erased["document_id"].upper()))["documents"] == 1
    assert (await world.http.get(f"/v1/documents/{erased['document_id']}")).status_code == 404


@pytest.mark.parametrize(
    ("scope", "name", "status"), [("tenant", "another", 422), ("planet", "x", 422)]
)
async def test_invalid_erasure_scope_or_name_is_rejected(
    world: ApiWorld, scope: str, name: str, status: int
) -> None:
    assert (
        await world.http.post("/v1/erasures", json={"scope": scope, "name": name})
    ).status_code == status


async def test_receipt_of_unencrypted_tenant_lists_remaining_topics(
    tmp_path: Path, database: str, overrides: Overrides
) -> None:
    settings = load_settings(
        data_dir=tmp_path / "data", sets=["logging.level=error", "log.plain_tenants=default"]
    )
    async with run_system(settings, database, overrides) as world:
        erased = await world.ingest_until_searchable(CANARY_TEXT, external_id="gone")
        assert "accepted" not in await find_canaries(
            database, settings.data_dir, [CANARY]
        ) and "ocr_done" in await find_canaries(database, settings.data_dir, [CANARY])
        receipt = await erase(world, "document", erased["document_id"])
    assert receipt["log"] == {"events": 0, "method": "nothing"}
    assert any("ocr_done" in place for place in receipt["remains"])


async def test_restored_keystore_backup_does_not_revive_erased_document(
    settings: Settings, database: str, overrides: Overrides
) -> None:
    async with run_system(settings, database, overrides) as world:
        erased = await world.ingest_until_searchable(CANARY_TEXT, external_id="gone")
        pool = await open_pool(database, size=1, name="test")
        backup = await pool.fetch("select * from keystore.keys")
        await erase(world, "document", erased["document_id"])
    try:
        await pool.execute("delete from keystore.keys")
        await pool.copy_records_to_table("keys", schema_name="keystore", records=backup)
        assert (
            await pool.fetchval("select count(*) from keystore.keys where wrapped is not null") >= 1
        )
        async with run_system(settings, database, overrides) as world:
            assert (
                await pool.fetchval(
                    "select count(*) from keystore.keys "
                    "where subject::text = $1 and wrapped is not null",
                    erased["document_id"],
                )
                == 0
            )
            assert await world.search(CANARY) == []
    finally:
        await close_pool(pool)
