from __future__ import annotations

import json

from tests.both_logs import on_both_logs
from tests.journey.conftest import World

NOTE = "# Allowances\n\nThe daily allowance in Lisbon is 74 euros.\n"


@on_both_logs
async def test_a_document_has_a_line_for_each_stage_with_its_place_in_the_log(world: World) -> None:
    receipt = await world.searchable(NOTE, external_id="allowances")
    items = (await world.http.get(f"/v1/documents/{receipt['document_id']}/events")).json()["items"]
    assert {item["stage"] for item in items} >= {"receive", "transcribe", "chunk", "embed", "index"}
    for item in items:
        place = {"topic": item["topic"], "partition": item["partition"], "offset": item["offset"]}
        assert None not in place.values() and item["revision"] == 1 and item["attempts"] == 1, item


@on_both_logs
async def test_a_document_that_failed_says_at_which_stage_and_why(world: World) -> None:
    receipt = await world.ingest(b"%PDF-1.4 but no more", "broken.pdf", external_id="broken")
    status = await world.ended(receipt)
    items = (await world.http.get(f"/v1/documents/{receipt['document_id']}/events")).json()["items"]
    failed = [item for item in items if item["state"] == "failed"]
    assert status["state"] == "failed" and len(failed) == 1
    assert failed[0]["error"]["code"] and failed[0]["error"]["remedy"] and failed[0]["stage"] == "receive"


@on_both_logs
async def test_the_facts_of_a_document_are_listed_in_the_order_of_the_log(world: World) -> None:
    receipt = await world.searchable(NOTE, external_id="allowances")
    await world.through(receipt)
    page = (await world.http.get("/v1/events", params={"document": receipt["document_id"], "limit": 50})).json()
    types = [item["type"] for item in page["items"]]
    assert types[:3] == ["document.accepted.v1", "document.transcribed.v1", "document.chunked.v1"]
    [indexed] = [item for item in page["items"] if item["type"] == "document.indexed.v1"]
    assert indexed["data"]["external_id"] == "allowances" and all("Lisbon" not in json.dumps(item) for item in page["items"])


async def test_a_long_history_is_told_in_pages_that_join_without_a_gap(world: World) -> None:
    for number in range(3):
        receipt = await world.searchable(f"The allowance is {number} euros.", external_id="allowances")
        await world.through(receipt)
    for path in (f"/v1/documents/{receipt['document_id']}/events", f"/v1/documents/{receipt['document_id']}/revisions"):
        whole = (await world.http.get(path)).json()
        pages, after = [], None
        while True:
            page = (await world.http.get(path, params={"limit": 2} | ({"after": after} if after is not None else {}))).json()
            pages += page["items"]
            if (after := page["next"]) is None:
                break
        assert len(whole["items"]) >= 3 and whole["next"] is None and pages == whole["items"]
