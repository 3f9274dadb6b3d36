from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import httpx2

from processors import STAGES
from tests.support.api_world import ApiWorld
from tests.support.eventually import eventually

HANDBOOK = """# Travel handbook

## Trains

Every train journey over two hours is booked in first class. \
The travel office books it within three working days.

## Daily allowance

The daily allowance in Lisbon is 74 euros. In Porto the daily allowance is 61 euros.
"""


async def test_ingested_document_is_cited_in_answer(world: ApiWorld) -> None:
    receipt = await world.ingest_until_searchable(
        HANDBOOK, "handbook.md", external_id="handbook", collection="rules", title="Travel handbook"
    )
    answer = await world.ask("What is the daily allowance in Lisbon?")
    assert not answer["refused"], answer
    assert "74 euros" in answer["answer"]
    markdown = (await world.http.get(f"/v1/documents/{receipt['document_id']}/markdown")).text
    for citation in answer["citations"]:
        assert citation["external_id"] == "handbook"
        span = citation["spans"][0]
        assert citation["quote"] in markdown[span["char_start"] :]
    assert answer["trace"]["generation"] == "g1"


async def test_new_revision_replaces_previous_in_search(world: ApiWorld) -> None:
    first = await world.ingest_until_searchable(
        "The gate code is 1111 for the north gate.", external_id="gate"
    )
    second = await world.ingest_until_searchable(
        "The gate code is 2222 for the north gate.", external_id="gate"
    )
    assert first["document_id"] == second["document_id"]
    found = await world.search("gate code of the north gate")
    assert ["2222" in result["snippet"] for result in found] == [True]
    revisions = (await world.http.get(f"/v1/documents/{first['document_id']}/revisions")).json()[
        "items"
    ]
    assert len(revisions) == 2


async def test_duplicate_content_is_detected_per_external_id(world: ApiWorld) -> None:
    first = await world.ingest_until_searchable("The same words in every copy of this note.")
    again = await world.ingest("The same words in every copy of this note.")
    other = await world.ingest("The same words in every copy of this note.", external_id="copy")
    assert (first["duplicate"], again["duplicate"], other["duplicate"]) == (False, True, False)
    assert first["document_id"] == again["document_id"] != other["document_id"]
    assert (await world.wait_until_final(again))["state"] == "searchable"
    moved = await world.ingest("The same words in every copy of this note.", collection="elsewhere")
    assert (moved["duplicate"], moved["document_id"]) == (False, first["document_id"]), (
        "its collection changes"
    )
    await world.wait_until_final(moved)
    assert (
        await world.ingest("The same words in every copy of this note.", collection="elsewhere")
    )["duplicate"]


async def test_changed_readers_are_not_a_duplicate(world: ApiWorld) -> None:
    async def send(**fields: object) -> dict[str, Any]:
        response = await world.http.post(
            "/v1/ingest", json={"text": "The lease of the boathouse ends in March."} | fields
        )
        assert response.status_code == 202, response.text
        return dict(response.json())

    first = await send()
    await world.wait_until_final(first)
    shown = f"/v1/documents/{first['document_id']}"
    assert (await world.http.get(shown)).json()["readers"] is None
    for readers in (["user:ana", "group:finance"], [], None):
        fields: dict[str, object] = {} if readers is None else {"readers": readers}
        limited = await send(**fields)
        assert (limited["document_id"], limited["duplicate"], limited["warnings"]) == (
            first["document_id"],
            False,
            [],
        ), readers
        await world.wait_until_final(limited)
        found = (await world.http.get(shown)).json()["readers"]
        assert found == (sorted(readers) if readers is not None else None)
        assert (await send(**fields))["duplicate"], readers


async def test_reader_without_prefix_is_rejected_with_remedy(world: ApiWorld) -> None:
    response = await world.http.post("/v1/ingest", json={"text": "A text.", "readers": ["ana"]})
    assert (response.status_code, response.json()["remedy"]) == (
        422,
        "readers: give user:NAME, group:NAME or everyone, without spaces.",
    )


async def test_idempotency_key_deduplicates_and_rejects_other_document(world: ApiWorld) -> None:
    async def send(text: str) -> httpx2.Response:
        return await world.http.post(
            "/v1/ingest",
            json={"text": text, "external_id": text},
            headers={"Idempotency-Key": "once"},
        )

    first, second = await send("alpha"), await send("alpha")
    assert first.json()["ingestion_job_id"] == second.json()["ingestion_job_id"]
    await world.wait_until_final(first.json())
    other = await send("beta")
    assert (other.status_code, other.json()["code"]) == (422, "IDEMPOTENCY_KEY_REUSED")


async def test_deleted_document_is_not_found_by_search(world: ApiWorld) -> None:
    receipt = await world.ingest_until_searchable(
        "Otters sleep holding hands so that they do not drift apart."
    )
    assert await world.search("otters holding hands")
    deleted = await world.http.delete(f"/v1/documents/{receipt['document_id']}")
    assert deleted.status_code == 202
    assert (await world.wait_until_final(deleted.json()))["state"] == "withdrawn"
    assert await world.search("otters holding hands") == []
    assert (await world.http.delete(f"/v1/documents/{uuid4()}")).status_code == 404


async def test_job_status_lists_stages_with_log_positions(world: ApiWorld) -> None:
    receipt = await world.ingest_until_searchable(HANDBOOK)
    status = await world.wait_until_all_stages_done(receipt)
    lines = {line["stage"]: line for line in status["stages"]}
    of_documents = {stage.name for stage in STAGES if not stage.serves_all_generations}
    assert lines.keys() == {"receive", *of_documents}
    assert all(
        None
        not in (
            lines[stage]["topic"],
            lines[stage]["partition"],
            lines[stage]["offset"],
            lines[stage]["started_at"],
        )
        for stage in lines
    ), lines
    assert lines["receive"]["topic"] == "raw"
    assert status["chunks_count"] > 0


async def test_chunk_text_equals_markdown_span(world: ApiWorld) -> None:
    receipt = await world.ingest_until_searchable(HANDBOOK)
    markdown = (await world.http.get(f"/v1/documents/{receipt['document_id']}/markdown")).text
    chunks = (await world.http.get(f"/v1/documents/{receipt['document_id']}/chunks")).json()[
        "items"
    ]
    assert chunks
    assert all(
        markdown[chunk["char_start"] : chunk["char_end"]] == chunk["text"] for chunk in chunks
    )


async def test_entities_and_subgraph_are_served(world: ApiWorld) -> None:
    await world.ingest_until_searchable(
        "Maria Silva works for Norte Energia S.A. in Lisbon. Norte Energia S.A. paid 5,000 euros "
        "on 3 May 2024."
    )
    page = await eventually(lambda: world.fetch_json("/v1/entities"), lambda page: page["items"])
    entities = page["items"]
    entity = (await world.http.get(f"/v1/entities/{UUID(entities[0]['id'])}")).json()
    assert entity["mentions"]
    graph = (await world.http.get("/v1/graph/subgraph", params={"seed": entities[0]["id"]})).json()
    assert graph["nodes"]


async def test_corrections_of_entities_are_applied_and_undone(world: ApiWorld) -> None:
    await world.ingest_until_searchable(
        "Maria Silva works for Norte Energia S.A. in Lisbon. Norte Energia S.A. paid 5,000 euros "
        "to Helena Costa."
    )
    page = await eventually(
        lambda: world.fetch_json("/v1/entities"), lambda page: len(page["items"]) > 2
    )
    named = {one["name"]: one for one in page["items"]}
    maria, helena = named["Maria Silva"], named["Helena Costa"]

    async def change(method: str, path: str, **body: Any) -> dict[str, Any]:
        response = await world.http.request(method, f"/v1/entities/{path}", json=body)
        assert response.status_code == 200, response.text
        assert response.json()["status"] == "applied"
        changed: dict[str, Any] = response.json()
        return changed

    merged = await change("POST", f"{helena['id']}/merge", into=maria["id"])
    assert (merged["id"], merged["name"], merged["aliases"]) == (
        maria["id"],
        "Maria Silva",
        ["Helena Costa"],
    )
    again = await world.http.post(f"/v1/entities/{helena['id']}/merge", json={"into": maria["id"]})
    assert (again.status_code, again.json()["code"]) == (422, "SAME_ENTITY")
    retyped = await change("PATCH", "Helena Costa", type="TEAM")
    assert (retyped["id"], retyped["type"]) == (maria["id"], "TEAM")
    # The type that documents state undoes it.
    assert (await change("PATCH", maria["id"], type="PERSON"))["type"] == "PERSON"
    unknown = await world.http.post(
        f"/v1/entities/{maria['id']}/split", json={"part": "Maria Silva"}
    )
    assert (unknown.status_code, unknown.json()["code"]) == (422, "NOT_MERGED")
    parted = await change("POST", f"{maria['id']}/split", part="helena costa")
    assert (parted["id"], parted["name"]) == (helena["id"], "Helena Costa")
    page = await world.fetch_json("/v1/entities")
    assert {one["name"]: one for one in page["items"]} == named
    audited = await world.fetch_json("/v1/audit")
    assert {"entity.merged", "entity.amended", "entity.split"} <= {
        one["action"] for one in audited["items"]
    }


async def test_abbreviation_of_a_document_is_followed_until_it_is_removed(world: ApiWorld) -> None:
    await world.ingest_until_searchable(
        "The Norte Investment Bank (NIB) paid 5,000 euros on 3 May 2024."
    )
    page = await eventually(
        lambda: world.fetch_json("/v1/entities", text="Norte"), lambda page: page["items"]
    )
    path = f"/v1/entities/{page['items'][0]['id']}"
    [found] = (await world.fetch_json(path))["found_aliases"]
    assert (found["alias"], found["kind"]) == ("NIB", "abbreviation")
    question = "What did NIB pay on 3 May 2024?"
    linked = await world.ask(question)
    assert any("“NIB” is taken as an alias of Norte" in text for text in linked["assumptions"])
    amended = (await world.http.patch(path, json={"remove_aliases": ["the nib"]})).json()
    assert (amended["status"], amended["found_aliases"]) == ("applied", [])
    unlinked = await world.ask(question)
    assert not any("alias" in text for text in unlinked["assumptions"])


async def test_question_by_an_added_alias_is_answered_and_says_so(world: ApiWorld) -> None:
    await world.ingest_until_searchable(
        "Maria Silva works for Norte Energia S.A. in Lisbon. Norte Energia S.A. paid 5,000 euros "
        "on 3 May 2024."
    )
    page = await eventually(
        lambda: world.fetch_json("/v1/entities", text="Norte"), lambda page: page["items"]
    )
    path = f"/v1/entities/{page['items'][0]['id']}"
    question = "What did NE pay on 3 May 2024?"
    before = await world.ask(question)
    amended = (await world.http.patch(path, json={"add_aliases": [" NE ", "the Buyer"]})).json()
    assert (amended["status"], amended["added_aliases"]) == ("applied", ["NE", "the Buyer"])
    found = await world.fetch_json("/v1/entities", text="buyer")
    assert [entity["id"] for entity in found["items"]] == [amended["id"]]
    # The answer before is not served from the cache.
    after = await world.ask(question)
    assert not any("alias" in text for text in before["assumptions"])
    assert any("“NE” is taken as an alias of Norte" in text for text in after["assumptions"])
    assert after["trace"]["plan"]["semantic_query"].startswith("What did Norte Energia S.A. pay")
    removed = await world.http.patch(path, json={"remove_aliases": ["ne", "the Buyer"]})
    assert removed.json()["added_aliases"] == []
    for body, code in (
        ({"remove_aliases": ["NE"]}, "UNKNOWN_ALIAS"),
        ({"remove_aliases": ["Norte Energia S.A."]}, "UNKNOWN_ALIAS"),
        ({}, "NOTHING_TO_AMEND"),
        ({"add_aliases": ["?"]}, "INVALID_REQUEST"),
    ):
        refused = await world.http.patch(path, json=body)
        assert (refused.status_code, refused.json()["code"]) == (422, code)


async def test_readiness_metrics_generations_and_profiles_are_served(world: ApiWorld) -> None:
    ready = (await world.http.get("/readyz")).json()
    assert ready["status"] == "ok"
    assert {"database", "log", "blobs", "generation"} <= ready["dependencies"].keys()
    await world.ask("anything at all")
    assert "anabranch_query_duration_seconds_count" in (await world.http.get("/metrics")).text
    assert [item["name"] for item in (await world.http.get("/v1/generations")).json()["items"]] == [
        "g1"
    ]
    assert "default" in [
        item["name"] for item in (await world.http.get("/v1/profiles")).json()["items"]
    ]
