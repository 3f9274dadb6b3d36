"""Lineage, without encryption too: the event's signature or a comparison finds a changed byte."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import asyncpg
import pytest
from prov.model import ProvDocument

from anabranch.composition.storage import recover_database
from anabranch.config.loader import load_settings
from anabranch.config.overrides import Overrides
from anabranch.config.settings import Settings
from schemas.ids import sha256_hex
from tests.support.api_world import ApiWorld, run_system
from tests.support.database_copies import copy_keys, copy_log
from tests.support.lineage import (
    NOTE,
    REVISED_NOTE,
    ask_and_record,
    fetch_lineage,
    find_source_entities,
)


async def test_lineage_of_citation_sentence_and_document_reaches_uploaded_bytes(
    world: ApiWorld,
) -> None:
    receipt = await world.ingest_until_searchable(
        NOTE, "allowances.md", external_id="allowances", title="Allowances"
    )
    answer = await ask_and_record(world)
    found = await fetch_lineage(world, answer["run_id"])
    assert found["broken"] == [] and found["verified"]
    [cited, *_] = found["citations"]
    assert (
        cited["quote"] == answer["citations"][0]["quote"]
        and NOTE[cited["char_start"] : cited["char_end"]] == cited["quote"]
    )
    hops = {hop["name"]: hop for hop in cited["hops"]}
    assert list(hops) == [
        "chunk",
        "embedded",
        "chunked",
        "transcribed",
        "accepted",
        "received",
        "blob",
    ]
    assert all(hop["verified"] for hop in cited["hops"]), cited["hops"]
    assert (
        hops["blob"]["sha256"]
        == cited["content_sha256"]
        == receipt["content_sha256"]
        == sha256_hex(NOTE.encode())
    )
    events = [
        hops[name]["event"]
        for name in ("embedded", "chunked", "transcribed", "accepted", "received")
    ]
    assert [event["author"] for event in events][:4] == [
        "anabranch/embed",
        "anabranch/chunk",
        "anabranch/transcribe",
        "anabranch/receive",
    ]
    assert [event["cause"] for event in events[:4]] == [
        events[1]["id"],
        events[2]["id"],
        events[3]["id"],
        events[4]["id"],
    ]
    assert [event["topic"] for event in events] == [
        "embedded",
        "chunked",
        "ocr_done",
        "accepted",
        "raw",
    ]
    document = (await world.http.get(f"/v1/documents/{receipt['document_id']}/lineage")).json()
    assert document["verified"] and [hop["name"] for hop in document["hops"]] == [
        "blob",
        "received",
        "accepted",
        "transcribed",
        "chunked",
        "embedded",
    ]
    assert (document["revision"], document["content_sha256"]) == (1, receipt["content_sha256"])
    sentence = await fetch_lineage(world, answer["run_id"], sentence=1)
    assert [one["n"] for one in sentence["citations"]] == [1]
    missing = await world.http.get(f"/v1/runs/{answer['run_id']}/lineage", params={"sentence": 99})
    assert missing.status_code == 404 and "no sentence 99" in missing.json()["detail"]


async def test_bracketed_number_in_quote_is_not_a_citation(world: ApiWorld) -> None:
    await world.ingest_until_searchable(
        "# Allowances\n\nThe daily allowance in Lisbon by Smith [2] is 74 euros, and [3] agrees.",
        external_id="allowances",
    )
    answer = await ask_and_record(world)
    assert "Smith [2] is" in answer["answer"]
    found = await fetch_lineage(world, answer["run_id"], sentence=1)
    assert [one["n"] for one in found["citations"]] == [1] and found["verified"]
    missing = await world.http.get(f"/v1/runs/{answer['run_id']}/lineage", params={"sentence": 2})
    assert missing.status_code == 404 and "its answer has 1 sentences" in missing.json()["remedy"]


async def test_lineage_of_superseded_passage_is_complete(world: ApiWorld) -> None:
    await world.ingest_until_searchable(NOTE, external_id="allowances")
    answer = await ask_and_record(world)
    await world.ingest_until_searchable(REVISED_NOTE, external_id="allowances")
    found = await fetch_lineage(world, answer["run_id"])
    assert found["verified"], found["broken"]
    names = [hop["name"] for hop in found["citations"][0]["hops"] if hop["verified"]]
    assert names == ["chunk", "chunked", "transcribed", "accepted", "received", "blob"]


Tamper = Callable[[asyncpg.Connection, ApiWorld], Awaitable[str]]


async def tamper_chunk(connection: asyncpg.Connection, world: ApiWorld) -> str:
    await connection.execute("update anabranch.child_chunks set text = replace(text, '74', '94')")
    return "child_chunks"


async def tamper_record(topic: str, connection: asyncpg.Connection) -> str:
    position = await connection.fetchval(
        "select position from anabranch.events where topic = $1 order by position limit 1", topic
    )
    await connection.execute(
        "update anabranch.events set value = set_byte(value, octet_length(value) / 2, "
        "(get_byte(value, octet_length(value) / 2) + 1) % 128) where position = $1",
        position,
    )
    return f"{topic}[0]@{position}"


async def tamper_chunked_record(connection: asyncpg.Connection, world: ApiWorld) -> str:
    return await tamper_record("chunked", connection)


async def tamper_transcript(connection: asyncpg.Connection, world: ApiWorld) -> str:
    return await tamper_record("ocr_done", connection)


async def tamper_raw_record(connection: asyncpg.Connection, world: ApiWorld) -> str:
    await connection.execute(
        "update anabranch.events set value = convert_to(replace(convert_from(value, 'UTF8'), "
        "'allowances', 'Allowances'), 'UTF8') where topic = 'raw'"
    )
    return "raw[0]@"


async def tamper_vector(connection: asyncpg.Connection, world: ApiWorld) -> str:
    await connection.execute(
        "update anabranch.chunk_vectors set embedding = (select ('[' || string_agg('0.5', ',') || "
        "']') from generate_series(1, 64))::extensions.halfvec"
    )
    return "embedded[0]@"


async def tamper_blob(connection: asyncpg.Connection, world: ApiWorld) -> str:
    key = await connection.fetchval("select blob ->> 'key' from anabranch.document_revisions")
    path = Path(world.settings.data_dir) / "blobs" / key
    path.write_bytes(path.read_bytes().replace(b"74", b"94"))
    return f"blob {key}"


async def delete_blob(connection: asyncpg.Connection, world: ApiWorld) -> str:
    key = await connection.fetchval("select blob ->> 'key' from anabranch.document_revisions")
    (Path(world.settings.data_dir) / "blobs" / key).unlink()
    return f"blob {key}"


async def tamper_recorded_page(connection: asyncpg.Connection, world: ApiWorld) -> str:
    await connection.execute(
        "update anabranch.runs set response = jsonb_set(response, '{citations,0,spans,0,page}', "
        "'7')"
    )
    return "child_chunks"


@pytest.mark.parametrize(
    "tampers",
    [
        (tamper_raw_record, tamper_blob, tamper_chunk),
        (tamper_recorded_page, tamper_vector, delete_blob),
        (tamper_transcript, tamper_chunked_record),
    ],
    ids=["source", "copies", "events"],
)
async def test_tampering_is_detected_and_located(
    world: ApiWorld, database: str, tampers: tuple[Tamper, ...]
) -> None:
    await world.ingest_until_searchable(NOTE, external_id="allowances")
    answer = await ask_and_record(world)
    faults: list[str] = []
    for tamper in tampers:
        connection = await asyncpg.connect(database)
        place = await tamper(connection, world)
        await connection.close()
        assert not any(place in fault for fault in faults), "nothing has been changed there yet"
        found = await fetch_lineage(world, answer["run_id"])
        faults = found["broken"]
        assert not found["verified"] and any(place in fault for fault in faults), faults


async def test_tampered_chunk_span_is_detected(world: ApiWorld, database: str) -> None:
    await world.ingest_until_searchable(NOTE, external_id="allowances")
    connection = await asyncpg.connect(database)
    await connection.execute(
        "update anabranch.child_chunks set spans = jsonb_set(spans, '{0,page}', '7')"
    )
    await connection.close()
    answer = await ask_and_record(world)
    assert answer["citations"][0]["pages"] == [7]
    found = await fetch_lineage(world, answer["run_id"])
    assert not found["verified"] and any(
        "chunked[0]@" in fault and "was recorded elsewhere" in fault for fault in found["broken"]
    ), found["broken"]


async def test_prov_export_escapes_titles_and_marks_unverified_entities(
    world: ApiWorld, database: str
) -> None:
    receipt = await world.ingest_until_searchable(
        NOTE, external_id="prov:no name", title="anabranch:a title, no name"
    )
    path = f"/v1/documents/{receipt['document_id']}/lineage"
    whole = (await world.http.get(path, params={"format": "prov"})).text
    assert ProvDocument.deserialize(content=whole, format="json") and '"false"' not in whole
    connection = await asyncpg.connect(database)
    await tamper_blob(connection, world)
    await connection.close()
    broken = json.loads((await world.http.get(path, params={"format": "prov"})).text)
    assert [
        name
        for name, entity in broken["entity"].items()
        if entity.get("anabranch:verified") == "false"
    ] == [f"doc:{receipt['document_id']}-revision-1"]


async def test_expired_raw_record_does_not_break_lineage(world: ApiWorld, database: str) -> None:
    await world.ingest_until_searchable(NOTE, external_id="allowances")
    answer = await ask_and_record(world)
    connection = await asyncpg.connect(database)
    await connection.execute("delete from anabranch.events where topic = 'raw'")
    await connection.close()
    found = await fetch_lineage(world, answer["run_id"])
    [received] = [hop for hop in found["citations"][0]["hops"] if hop["name"] == "received"]
    assert (
        found["verified"]
        and received["verified"] is None
        and "limited retention" in received["detail"]
    )


async def test_prov_export_is_read_by_reference_library(world: ApiWorld) -> None:
    receipt = await world.ingest_until_searchable(NOTE, external_id="allowances")
    answer = await ask_and_record(world)
    for path in (
        f"/v1/runs/{answer['run_id']}/lineage",
        f"/v1/documents/{receipt['document_id']}/lineage",
    ):
        response = await world.http.get(path, params={"format": "prov"})
        assert response.headers["content-type"] == "application/provenance+json"
        read = ProvDocument.deserialize(content=response.text, format="json")
        assert read == ProvDocument.deserialize(
            content=read.serialize(format="json"), format="json"
        )
        assert find_source_entities(json.loads(response.text)) == {
            f"sha256:{receipt['content_sha256']}"
        }


async def test_recovery_marks_raw_record_as_unknown_in_lineage(
    settings: Settings, database: str, other_database: str, overrides: Overrides
) -> None:
    async with run_system(settings, database, overrides) as world:
        receipt = await world.ingest_until_searchable(NOTE, external_id="allowances")
    await copy_log(database, other_database)
    await copy_keys(database, other_database)
    await recover_database(settings, other_database)
    async with run_system(settings, other_database, overrides) as world:
        found = (await world.http.get(f"/v1/documents/{receipt['document_id']}/lineage")).json()
    assert found["verified"]
    [received] = [hop for hop in found["hops"] if hop["name"] == "received"]
    assert received["verified"] is None and "no longer recorded" in received["detail"]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(
        data_dir=tmp_path / "data", sets=["logging.level=error", "log.plain_tenants=default"]
    )


@pytest.mark.parametrize(
    ("topic", "before", "after", "fault"),
    [
        ("chunked", "74 euros", "94 euros", "UNSIGNED_EVENT"),
        ("chunked", "Travel is", "Gravel is", "UNSIGNED_EVENT"),
        ("ocr_done", "74 euros", "94 euros", "UNSIGNED_EVENT"),
        ("ocr_done", "Travel is", "Gravel is", "UNSIGNED_EVENT"),
        ("raw", "allowances", "Allowances", "differs from the one that ingress accepted"),
    ],
)
async def test_tampered_plain_text_event_is_detected(
    world: ApiWorld, database: str, topic: str, before: str, after: str, fault: str
) -> None:
    await world.ingest_until_searchable(NOTE, external_id="allowances")
    answer = await ask_and_record(world)
    connection = await asyncpg.connect(database)
    await connection.execute(
        "update anabranch.events set value = convert_to(replace(convert_from(value, 'UTF8'), $2, "
        "$3), 'UTF8') where topic = $1",
        topic,
        before,
        after,
    )
    await connection.close()
    found = await fetch_lineage(world, answer["run_id"])
    assert not found["verified"] and [
        f"{topic}[0]@" in one and fault in one for one in found["broken"]
    ] == [True], found["broken"]
