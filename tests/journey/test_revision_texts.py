"""Revisions and amendments: texts, events, a switch under load; and a killed upload."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import httpx2

from anabranch.composition.storage import recover_database
from anabranch.config.overrides import Overrides
from anabranch.config.settings import Settings
from engines.disk import FOLDER
from processors.transcribe import MAX_INLINE_BYTES
from schemas.topics import OUTCOMES
from tests.support.api_world import ApiWorld, run_system
from tests.support.database_copies import copy_keys, copy_log
from tests.support.erasure import erase
from tests.support.eventually import eventually, eventually_blocking
from tests.support.limited_callers import open_limited_callers
from tests.support.log_backends import long_on_kafka, long_on_postgres, on_both_logs
from tests.support.server_process import list_descendants, run_up

FIRST = "<h1>Tolls</h1><p>A van pays 4.50 crowns.</p>"
SECOND = "<h1>Tolls</h1><p>A van pays 5.25 crowns.</p>"
LONG = "# Ledger\n\n" + "\n\n".join(
    f"Entry {number} records {number * 7919} herons." for number in range(MAX_INLINE_BYTES // 30)
)


async def fetch_text(world: ApiWorld, document: str, revision: int) -> httpx2.Response:
    return await world.http.get(f"/v1/documents/{document}/markdown", params={"revision": revision})


async def ingest_revisions(world: ApiWorld, *texts: str) -> str:
    for text in texts:
        receipt = await world.ingest_until_searchable(text, "tolls.html", external_id="tolls")
    return str(receipt["document_id"])


async def test_text_of_superseded_revision_is_served(world: ApiWorld) -> None:
    # The third has the bytes of the second and shares its text.
    document = await ingest_revisions(world, FIRST, SECOND, SECOND, FIRST)
    texts = [await fetch_text(world, document, revision) for revision in (1, 2, 3, 4)]
    assert ["4.50" in text.text for text in texts] == [True, False, False, True]
    assert texts[1].text == texts[2].text and "A van pays 5.25 crowns." in texts[1].text
    assert (await fetch_text(world, document, 5)).status_code == 404


async def test_text_above_the_inline_limit_is_served(world: ApiWorld) -> None:
    for text in (LONG, "# Ledger\n\nIt was lost."):
        receipt = await world.ingest_until_searchable(text, "ledger.md", external_id="ledger")
        visible = await world.http.get(f"/v1/documents/{receipt['document_id']}/markdown")
        assert visible.text.strip() == text
    superseded = await fetch_text(world, receipt["document_id"], 1)
    assert superseded.text.strip() == LONG


async def test_withdrawn_text_is_served_by_revision_only(world: ApiWorld) -> None:
    document = await ingest_revisions(world, FIRST)
    receipt = (await world.http.delete(f"/v1/documents/{document}")).json()
    await world.wait_until_final(receipt)
    assert (await world.http.get(f"/v1/documents/{document}/markdown")).status_code == 404
    assert "4.50" in (await fetch_text(world, document, 1)).text


async def test_text_that_the_log_lost_is_refused_with_the_reason(
    world: ApiWorld, database: str
) -> None:
    document = await ingest_revisions(world, FIRST, SECOND)
    connection = await asyncpg.connect(database)
    await connection.execute("delete from anabranch.events where topic = 'ocr_done'")
    expired = await fetch_text(world, document, 1)
    assert expired.status_code == 404
    assert "revision 1: removed from the log by retention." in expired.json()["detail"]
    await connection.execute("delete from anabranch.job_stages")
    await connection.close()
    unknown = await fetch_text(world, document, 1)
    assert "its position in the log is not recorded" in unknown.json()["detail"]
    assert "5.25" in (await fetch_text(world, document, 2)).text


async def test_text_of_another_document_is_not_served(world: ApiWorld, database: str) -> None:
    document = await ingest_revisions(world, FIRST, SECOND)
    await world.ingest_until_searchable("The vault is under the mill.", external_id="secret")
    connection = await asyncpg.connect(database)
    await connection.execute(
        "update anabranch.job_stages set log_offset = "
        "(select max(position) from anabranch.events where topic = 'ocr_done') "
        "where stage = 'chunk'"
    )
    await connection.close()
    refused = await fetch_text(world, document, 1)
    assert refused.status_code == 404 and "another event is stored there" in refused.text


async def test_erased_document_has_no_text_of_any_revision(world: ApiWorld) -> None:
    document = await ingest_revisions(world, FIRST, SECOND)
    await erase(world, "document", document)
    for revision in (1, 2):
        erased = await fetch_text(world, document, revision)
        assert erased.status_code == 404 and "crowns" not in erased.text, erased.text


async def test_superseded_text_is_limited_to_its_readers(
    settings: Settings, database: str, overrides: Overrides
) -> None:
    async with open_limited_callers(settings, database, overrides) as callers:
        for text, readers in ((FIRST, ["user:board"]), (SECOND, None)):
            receipt = await callers.ingest(
                "admin", text=text, external_id="tolls", **({"readers": readers} if readers else {})
            )
            await callers.wait_until_final(receipt)
        document = receipt.json()["document_id"]
        seen = {
            user: (await callers.fetch(user, document, "/markdown?revision=1")).status_code
            for user in ("admin", "ana")
        }
        assert seen == {"admin": 200, "ana": 404}
        assert (await callers.fetch("ana", document, "/markdown?revision=2")).status_code == 200


async def test_superseded_text_is_served_after_a_recovery(
    settings: Settings, database: str, other_database: str, overrides: Overrides
) -> None:
    async with run_system(settings, database, overrides) as world:
        document = await ingest_revisions(world, FIRST, SECOND)
    await copy_log(database, other_database)
    await copy_keys(database, other_database)
    await recover_database(settings, other_database)
    async with run_system(settings, other_database, overrides) as world:
        found = await fetch_text(world, document, 1)
    assert "4.50" in found.text, found.text


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
    first = ["document.accepted.v1", "document.transcribed.v1", "document.chunked.v1"]
    assert [name for name in types if name in first] == first
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


READER_COUNT = 4
SWITCH_COUNT = 5
SECTION_COUNT = 12
FILLER = (
    "Each of the boats that wait below the sluice pays the toll, "
    "and the keeper writes it down with the hour and the level of the water. "
) * 8


def make_edition(edition: str) -> str:
    """Make a text of a dozen chunks, each of which names its edition."""
    return "\n\n".join(
        f"# Rule {number}\n\nThe lock toll of the {edition} edition, rule {number}. {FILLER}"
        for number in range(SECTION_COUNT)
    )


def find_editions(answer: dict[str, Any]) -> set[tuple[int, str]]:
    """Return the editions in an answer by revision number and by text."""
    return {
        (result["revision"], "first" if "first edition" in result["snippet"] else "second")
        for result in answer["results"]
    }


@long_on_postgres
async def test_every_search_sees_one_revision_during_switch(world: ApiWorld) -> None:
    await world.ingest_until_searchable(make_edition("first"), external_id="tolls")
    seen: list[dict[str, Any]] = []
    over = asyncio.Event()

    async def reader() -> None:
        while not over.is_set():
            response = await world.http.post(
                "/v1/search", json={"query": "lock toll edition rule", "k": 10}
            )
            assert response.status_code == 200, response.text
            seen.append(response.json())

    async def writer() -> None:
        for turn in range(SWITCH_COUNT):
            await world.ingest_until_searchable(
                make_edition(["second", "first"][turn % 2]), external_id="tolls"
            )
        over.set()

    await asyncio.gather(writer(), *(reader() for _ in range(READER_COUNT)))
    assert all(answer["results"] for answer in seen), "there is always one that answers"
    assert all(len(find_editions(answer)) == 1 for answer in seen)
    assert len({edition for answer in seen for edition in find_editions(answer)}) > 2, (
        "several revisions were seen"
    )


CANARY = b"Quetzalcoatlus"
REQUEST_HEAD = (
    "POST /v1/ingest HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n"
    "Content-Type: multipart/form-data; boundary=b\r\nContent-Length: 90000000\r\n\r\n"
    '--b\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\n'
)


def test_restart_deletes_partial_upload_of_killed_api(folder: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "system"
    elsewhere.mkdir()
    with run_up(folder, TMPDIR=str(elsewhere)) as (first, server), send_partial_upload(server):
        spooled = eventually_blocking(lambda: find_spooled_files(folder))
        assert CANARY in spooled[0].read_bytes()
        assert list(elsewhere.glob("anabranch-upload-*")) == []
        for pid in (*list_descendants(first.process.pid), first.process.pid):
            os.kill(pid, signal.SIGKILL)
        first.process.wait()
    assert find_spooled_files(folder), "the killed process could not delete its files"
    with run_up(folder):
        assert find_spooled_files(folder) == []


def send_partial_upload(server: dict[str, Any]) -> socket.socket:
    place = urlsplit(server["url"])
    opened = socket.create_connection((place.hostname, place.port))
    opened.sendall(
        REQUEST_HEAD.format(host=place.netloc, token=server["token"]).encode() + CANARY * 200_000
    )
    return opened


def find_spooled_files(folder: Path) -> list[Path]:
    return [path for path in (folder / FOLDER).rglob("anabranch-upload-*") if path.stat().st_size]


LOCK_NOTE = "The lock keeper of the lower basin opens the sluice at six."


async def amend_and_wait(world: ApiWorld, document: str, **said: Any) -> dict[str, Any]:
    response = await world.http.patch(f"/v1/documents/{document}", json=said)
    assert response.status_code == 202, response.text
    return await world.wait_until_final(response.json())


async def fetch_document(world: ApiWorld, document: str) -> dict[str, Any]:
    return dict((await world.http.get(f"/v1/documents/{document}")).json())


@long_on_postgres
async def test_amendment_updates_filters_without_reprocessing(world: ApiWorld) -> None:
    document = (
        await world.ingest_until_searchable(
            LOCK_NOTE,
            external_id="lock",
            title="Locks",
            tags=["water"],
            metadata=json.dumps({"year": 2025, "old": 1}),
        )
    )["document_id"]
    before = (
        await count_events(world, "embedded"),
        await count_events(world, "chunked"),
        await count_events(world, "ocr_done"),
    )
    status = await amend_and_wait(
        world,
        document,
        title="Sluices",
        tags=["gates"],
        collection="basin",
        metadata={"year": 2026, "old": None},
    )
    assert status["state"] == "searchable"
    found = await fetch_document(world, document)
    assert [found[name] for name in ("title", "tags", "collection", "metadata")] == [
        "Sluices",
        ["gates"],
        "basin",
        {"year": 2026},
    ]
    for filters, hits in [
        ({"tags": ["gates"], "collections": ["basin"], "metadata": {"year": 2026}}, 1),
        ({"tags": ["water"]}, 0),
        ({"metadata": {"old": 1}}, 0),
    ]:
        assert [
            result["title"] for result in await world.search("lock keeper", filters=filters)
        ] == ["Sluices"] * hits
    assert (
        await count_events(world, "embedded"),
        await count_events(world, "chunked"),
        await count_events(world, "ocr_done"),
    ) == before


async def count_events(world: ApiWorld, topic: str) -> int:
    return sum([1 async for _ in world.worker.storage.log.read(topic)])


@long_on_kafka
async def test_amended_title_is_kept_and_indexed_with_next_revision(world: ApiWorld) -> None:
    document = (await world.ingest_until_searchable(LOCK_NOTE, external_id="lock"))["document_id"]
    await amend_and_wait(world, document, title="Zanzibar ledger")
    assert await world.search("Zanzibar", channels=["lexical"]) == []
    await world.ingest_until_searchable(LOCK_NOTE + " At noon it is closed.", external_id="lock")
    assert [result["title"] for result in await world.search("Zanzibar", channels=["lexical"])] == [
        "Zanzibar ledger"
    ]
    await world.ingest_until_searchable(
        LOCK_NOTE + " At night it is open.", external_id="lock", title="Given again"
    )
    assert (await fetch_document(world, document))["title"] == "Given again"


@long_on_kafka
async def test_amendment_outcome_is_published(world: ApiWorld) -> None:
    document = (await world.ingest_until_searchable(LOCK_NOTE, external_id="lock"))["document_id"]
    await amend_and_wait(world, document, tags=["gates"])
    outcomes = await wait_for_outcomes(world, 2)
    assert {
        (outcome["code"], outcome["chunks_count"], outcome["document_id"]) for outcome in outcomes
    } == {(None, 1, document), ("AMENDED", 1, document)}


async def wait_for_outcomes(world: ApiWorld, count: int) -> list[dict[str, Any]]:
    """Wait for `count` outcomes and return them in no particular order.

    A document becomes searchable before its outcome is published, and two stages publish outcomes.
    """
    await eventually(lambda: count_events(world, OUTCOMES), lambda outcomes: outcomes >= count)
    return [
        json.loads(stored.record.value or b"{}")
        async for stored in world.worker.storage.log.read(OUTCOMES)
    ]


async def test_empty_amendment_is_rejected(world: ApiWorld) -> None:
    document = (await world.ingest_until_searchable(LOCK_NOTE))["document_id"]
    amendments: list[dict[str, Any]] = [{}, {"title": None}, {"metadata": {}}]
    for amendment in amendments:
        response = await world.http.patch(f"/v1/documents/{document}", json=amendment)
        assert (response.status_code, response.json()["code"]) == (422, "NOTHING_TO_AMEND")


async def test_withdrawn_document_cannot_be_amended(world: ApiWorld) -> None:
    document = (await world.ingest_until_searchable(LOCK_NOTE))["document_id"]
    await world.wait_until_final((await world.http.delete(f"/v1/documents/{document}")).json())
    assert (
        await world.http.patch(f"/v1/documents/{document}", json={"title": "t"})
    ).status_code == 404
