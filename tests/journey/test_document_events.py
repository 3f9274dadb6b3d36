from __future__ import annotations

import json

from tests.support.api_world import ApiWorld
from tests.support.log_backends import long_on_kafka, on_both_logs

NOTE = "# Allowances\n\nThe daily allowance in Lisbon is 74 euros.\n"


@on_both_logs
async def test_document_events_are_listed_by_stage_and_in_log_order(world: ApiWorld) -> None:
    receipt = await world.ingest_until_searchable(NOTE, external_id="allowances")
    await world.wait_until_all_stages_done(receipt)
    items = (await world.http.get(f"/v1/documents/{receipt['document_id']}/events")).json()["items"]
    assert {item["stage"] for item in items} >= {"receive", "transcribe", "chunk", "embed", "index"}
    for item in items:
        place = {"topic": item["topic"], "partition": item["partition"], "offset": item["offset"]}
        assert None not in place.values() and item["revision"] == 1 and item["attempts"] == 1, item
    page = (
        await world.http.get("/v1/events", params={"document": receipt["document_id"], "limit": 50})
    ).json()
    types = [item["type"] for item in page["items"]]
    assert types[:3] == ["document.accepted.v1", "document.transcribed.v1", "document.chunked.v1"]
    [indexed] = [item for item in page["items"] if item["type"] == "document.indexed.v1"]
    assert indexed["data"]["external_id"] == "allowances" and all(
        "Lisbon" not in json.dumps(item) for item in page["items"]
    )


@long_on_kafka
async def test_failed_document_reports_stage_and_error(world: ApiWorld) -> None:
    receipt = await world.ingest(b"%PDF-1.4 but no more", "broken.pdf", external_id="broken")
    status = await world.wait_until_final(receipt)
    items = (await world.http.get(f"/v1/documents/{receipt['document_id']}/events")).json()["items"]
    failed = [item for item in items if item["state"] == "failed"]
    assert status["state"] == "failed" and len(failed) == 1
    assert (
        failed[0]["error"]["code"]
        and failed[0]["error"]["remedy"]
        and failed[0]["stage"] == "receive"
    )


async def test_document_history_is_paginated_without_gaps(world: ApiWorld) -> None:
    for number in range(3):
        receipt = await world.ingest_until_searchable(
            f"The allowance is {number} euros.", external_id="allowances"
        )
        await world.wait_until_all_stages_done(receipt)
    for path in (
        f"/v1/documents/{receipt['document_id']}/events",
        f"/v1/documents/{receipt['document_id']}/revisions",
    ):
        whole = (await world.http.get(path)).json()
        pages, after = [], None
        while True:
            page = (
                await world.http.get(
                    path, params={"limit": 2} | ({"after": after} if after is not None else {})
                )
            ).json()
            pages += page["items"]
            if (after := page["next"]) is None:
                break
        assert len(whole["items"]) >= 3 and whole["next"] is None and pages == whole["items"]
