from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from prov.model import ProvDocument

from anabranch.background.recovery import recover
from anabranch.composition.overrides import Overrides
from anabranch.settings import Settings
from schemas.ids import sha256_hex
from tests.integration.test_recovery import copy_keys, copy_log
from tests.journey.conftest import PATIENCE_S, World, running

QUESTION = "What is the daily allowance in Lisbon?"
NOTE = "# Allowances\n\nThe daily allowance in Lisbon is 74 euros. Travel is booked by the office.\n"
LATER = "# Allowances\n\nThere is no allowance any more. Everybody stays at home this year.\n"


async def recorded(world: World, run: str) -> None:
    """Wait until the answer has come through the log."""
    async with asyncio.timeout(PATIENCE_S):
        while not ((await world.http.get(f"/v1/runs/{run}")).json().get("response")):
            await asyncio.sleep(0)


async def answered(world: World) -> dict[str, Any]:
    answer = await world.ask(QUESTION)
    assert "74 euros" in (answer["answer"] or ""), answer
    await recorded(world, answer["run_id"])
    return answer


async def lineage(world: World, run: str, **options: Any) -> dict[str, Any]:
    response = await world.http.get(f"/v1/runs/{run}/lineage", params=options)
    assert response.status_code == 200, response.text
    return dict(response.json())


async def test_a_citation_leads_back_over_every_event_to_the_uploaded_bytes(world: World) -> None:
    receipt = await world.searchable(NOTE, "allowances.md", external_id="allowances", title="Allowances")
    answer = await answered(world)
    found = await lineage(world, answer["run_id"])
    assert found["broken"] == [] and found["verified"]
    [cited, *_] = found["citations"]
    assert cited["quote"] == answer["citations"][0]["quote"] and NOTE[cited["char_start"] : cited["char_end"]] == cited["quote"]
    hops = {hop["name"]: hop for hop in cited["hops"]}
    assert list(hops) == ["chunk", "embedded", "chunked", "transcribed", "accepted", "received", "blob"]
    assert all(hop["verified"] for hop in cited["hops"]), cited["hops"]
    assert hops["blob"]["sha256"] == cited["content_sha256"] == receipt["content_sha256"] == sha256_hex(NOTE.encode())
    events = [hops[name]["event"] for name in ("embedded", "chunked", "transcribed", "accepted", "received")]
    assert [event["author"] for event in events][:4] == ["anabranch/embed", "anabranch/chunk", "anabranch/transcribe", "anabranch/receive"]
    assert [event["cause"] for event in events[:4]] == [events[1]["id"], events[2]["id"], events[3]["id"], events[4]["id"]]
    assert [event["topic"] for event in events] == ["embedded", "chunked", "ocr_done", "accepted", "raw"]


async def test_one_sentence_has_the_lineage_of_its_own_citations(world: World) -> None:
    await world.searchable(NOTE, external_id="allowances")
    answer = await answered(world)
    found = await lineage(world, answer["run_id"], sentence=1)
    assert [one["n"] for one in found["citations"]] == [1]
    missing = await world.http.get(f"/v1/runs/{answer['run_id']}/lineage", params={"sentence": 99})
    assert missing.status_code == 404 and "no sentence 99" in missing.json()["detail"]


async def test_a_number_in_brackets_that_stands_in_the_quoted_text_is_no_mark_of_ours(world: World) -> None:
    await world.searchable("# Allowances\n\nThe daily allowance in Lisbon by Smith [2] is 74 euros, and [3] agrees.", external_id="allowances")
    answer = await answered(world)
    assert "Smith [2] is" in answer["answer"]
    found = await lineage(world, answer["run_id"], sentence=1)
    assert [one["n"] for one in found["citations"]] == [1] and found["verified"]
    missing = await world.http.get(f"/v1/runs/{answer['run_id']}/lineage", params={"sentence": 2})
    assert missing.status_code == 404 and "1 sentences" in missing.json()["remedy"]


async def test_the_lineage_of_a_superseded_passage_is_still_whole(world: World) -> None:
    await world.searchable(NOTE, external_id="allowances")
    answer = await answered(world)
    await world.searchable(LATER, external_id="allowances")
    found = await lineage(world, answer["run_id"])
    assert found["verified"], found["broken"]
    names = [hop["name"] for hop in found["citations"][0]["hops"] if hop["verified"]]
    assert names == ["chunk", "chunked", "transcribed", "accepted", "received", "blob"]


async def test_a_document_has_the_lineage_of_the_revision_that_answers(world: World) -> None:
    receipt = await world.searchable(NOTE, external_id="allowances")
    found = (await world.http.get(f"/v1/documents/{receipt['document_id']}/lineage")).json()
    assert found["verified"] and [hop["name"] for hop in found["hops"]] == ["blob", "received", "accepted", "transcribed", "chunked", "embedded"]
    assert (found["revision"], found["content_sha256"]) == (1, sha256_hex(NOTE.encode()))


Tamper = Callable[[asyncpg.Connection, World], Awaitable[str]]


async def the_chunk(connection: asyncpg.Connection, world: World) -> str:
    await connection.execute("update anabranch.child_chunks set text = replace(text, '74', '94')")
    return "child_chunks"


async def the_record(topic: str, connection: asyncpg.Connection) -> str:
    position = await connection.fetchval("select position from anabranch.events where topic = $1 order by position limit 1", topic)
    await connection.execute(
        "update anabranch.events set value = set_byte(value, octet_length(value) / 2, (get_byte(value, octet_length(value) / 2) + 1) % 128) where position = $1",
        position,
    )
    return f"{topic}[0]@{position}"


async def the_chunked_record(connection: asyncpg.Connection, world: World) -> str:
    return await the_record("chunked", connection)


async def the_transcript(connection: asyncpg.Connection, world: World) -> str:
    return await the_record("ocr_done", connection)


async def the_raw_record(connection: asyncpg.Connection, world: World) -> str:
    await connection.execute(
        "update anabranch.events set value = convert_to(replace(convert_from(value, 'UTF8'), 'allowances', 'Allowances'), 'UTF8') where topic = 'raw'"
    )
    return "raw[0]@"


async def the_vector(connection: asyncpg.Connection, world: World) -> str:
    await connection.execute(
        "update anabranch.chunk_vectors set embedding = (select ('[' || string_agg('0.5', ',') || ']') from generate_series(1, 64))::extensions.halfvec"
    )
    return "embedded[0]@"


async def the_bytes(connection: asyncpg.Connection, world: World) -> str:
    key = await connection.fetchval("select blob ->> 'key' from anabranch.document_revisions")
    path = Path(world.settings.data_dir) / "blobs" / key
    path.write_bytes(path.read_bytes().replace(b"74", b"94"))
    return f"blob {key}"


async def the_lost_bytes(connection: asyncpg.Connection, world: World) -> str:
    key = await connection.fetchval("select blob ->> 'key' from anabranch.document_revisions")
    (Path(world.settings.data_dir) / "blobs" / key).unlink()
    return f"blob {key}"


async def the_recorded_page(connection: asyncpg.Connection, world: World) -> str:
    await connection.execute("update anabranch.runs set response = jsonb_set(response, '{citations,0,spans,0,page}', '7')")
    return "child_chunks"


@pytest.mark.parametrize("tamper", [the_chunk, the_recorded_page, the_chunked_record, the_transcript, the_raw_record, the_vector, the_bytes, the_lost_bytes])
async def test_a_changed_byte_is_found_and_its_place_named(world: World, database: str, tamper: Tamper) -> None:
    await world.searchable(NOTE, external_id="allowances")
    answer = await answered(world)
    connection = await asyncpg.connect(database)
    try:
        place = await tamper(connection, world)
    finally:
        await connection.close()
    found = await lineage(world, answer["run_id"])
    assert not found["verified"] and any(place in fault for fault in found["broken"]), found["broken"]


async def test_an_answer_that_was_read_from_a_chunk_at_another_place_is_found_out(world: World, database: str) -> None:
    await world.searchable(NOTE, external_id="allowances")
    connection = await asyncpg.connect(database)
    await connection.execute("update anabranch.child_chunks set spans = jsonb_set(spans, '{0,page}', '7')")
    await connection.close()
    answer = await answered(world)
    assert answer["citations"][0]["pages"] == [7]
    found = await lineage(world, answer["run_id"])
    assert not found["verified"] and any("chunked[0]@" in fault and "was read as from elsewhere" in fault for fault in found["broken"]), found["broken"]


async def test_a_title_that_looks_like_a_name_of_prov_stays_a_title_and_what_does_not_fit_is_marked(world: World, database: str) -> None:
    receipt = await world.searchable(NOTE, external_id="prov:no name", title="anabranch:a title, no name")
    path = f"/v1/documents/{receipt['document_id']}/lineage"
    whole = (await world.http.get(path, params={"format": "prov"})).text
    assert ProvDocument.deserialize(content=whole, format="json") and '"false"' not in whole
    connection = await asyncpg.connect(database)
    await the_bytes(connection, world)
    await connection.close()
    broken = json.loads((await world.http.get(path, params={"format": "prov"})).text)
    assert [name for name, entity in broken["entity"].items() if entity.get("anabranch:verified") == "false"] == [f"doc:{receipt['document_id']}-revision-1"]


async def test_a_record_that_topic_raw_no_longer_keeps_is_no_fault(world: World, database: str) -> None:
    await world.searchable(NOTE, external_id="allowances")
    answer = await answered(world)
    connection = await asyncpg.connect(database)
    await connection.execute("delete from anabranch.events where topic = 'raw'")
    await connection.close()
    found = await lineage(world, answer["run_id"])
    [received] = [hop for hop in found["citations"][0]["hops"] if hop["name"] == "received"]
    assert found["verified"] and received["verified"] is None and "for a time only" in received["detail"]


async def test_lineage_is_prov_json_that_the_reference_library_reads(world: World) -> None:
    receipt = await world.searchable(NOTE, external_id="allowances")
    answer = await answered(world)
    for path in (f"/v1/runs/{answer['run_id']}/lineage", f"/v1/documents/{receipt['document_id']}/lineage"):
        response = await world.http.get(path, params={"format": "prov"})
        assert response.headers["content-type"] == "application/provenance+json"
        read = ProvDocument.deserialize(content=response.text, format="json")
        assert read == ProvDocument.deserialize(content=read.serialize(format="json"), format="json")
        assert bytes_reached(json.loads(response.text)) == {f"sha256:{receipt['content_sha256']}"}


def bytes_reached(document: dict[str, Any]) -> set[str]:
    """Entities that nothing else is derived into, from the answer or the revision on."""
    edges = [(one["prov:generatedEntity"], one["prov:usedEntity"]) for one in document["wasDerivedFrom"].values()]
    sources, derived = {used for _, used in edges}, {made for made, _ in edges}
    assert sources <= set(document["entity"]) and derived <= set(document["entity"])
    return {one for one in sources - derived if not one.startswith("event:")}


async def test_after_a_recovery_what_the_door_read_is_not_called_gone_from_the_log(
    settings: Settings, database: str, other_database: str, overrides: Overrides
) -> None:
    async with running(settings, database, overrides) as world:
        receipt = await world.searchable(NOTE, external_id="allowances")
    await copy_log(database, other_database)
    await copy_keys(database, other_database)
    await recover(settings, other_database)
    async with running(settings, other_database, overrides) as world:
        found = (await world.http.get(f"/v1/documents/{receipt['document_id']}/lineage")).json()
    assert found["verified"]
    [received] = [hop for hop in found["hops"] if hop["name"] == "received"]
    assert received["verified"] is None and "no longer known" in received["detail"]
