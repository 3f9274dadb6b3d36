"""The current readers of a document decide who may change it, not earlier jobs of a caller."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from schemas.events import Content, DocumentAmended, DocumentReceived
from schemas.ids import make_document_id, sha256_hex
from sql.database import close_pool, open_pool
from sql.log.event_log import PgLog
from streams.codec import Codec
from streams.publisher import build_raw_record
from tests.support.eventually import eventually
from tests.support.limited_callers import LimitedCallers

MINUTES = "The board sells the mill in Tavira for 4.2 million euros."


async def assert_hidden(callers: LimitedCallers, user: str, document: str) -> None:
    """Assert that the user gets no byte of the document, and cannot change it."""
    for part in ("", "/markdown", "/revisions", "/chunks", "/file"):
        response = await callers.fetch(user, document, part)
        assert response.status_code == 404, (part, response.text)
    events = await callers.request(user, "GET", f"/v1/events?document={document}&after=begin")
    assert events.status_code == 404 or not events.json()["items"], events.text
    lineage = await callers.request(user, "GET", f"/v1/documents/{document}/lineage")
    assert lineage.status_code == 404, lineage.text
    unknown = await callers.amend(user, "00000000-0000-4000-8000-000000000000", tags=["x"])
    for response in (
        await callers.amend(user, document, tags=["seen"]),
        await callers.amend(user, document, readers=[f"user:{user}"]),
        await callers.withdraw(user, document),
    ):
        assert response.status_code == unknown.status_code == 404, response.text
        assert response.json()["code"] == unknown.json()["code"]


async def test_earlier_amendment_grants_no_access(callers: LimitedCallers) -> None:
    receipt = await callers.ingest("admin", text=MINUTES, external_id="plan-1")
    await callers.wait_until_final(receipt)
    document = receipt.json()["document_id"]
    amended = await callers.amend("ana", document, tags=["seen"])
    await callers.wait_until_final(amended)
    restricted = await callers.amend("admin", document, readers=["user:board"])
    assert (await callers.amend("ana", document, readers=["user:ana"])).status_code == 404
    await callers.wait_until_final(restricted)
    await assert_hidden(callers, "ana", document)
    # Her own job tells its outcome, and nothing of the document.
    status = await callers.request(
        "ana", "GET", f"/v1/ingest/status/{amended.json()['ingestion_job_id']}"
    )
    assert status.status_code == 200 and MINUTES not in status.text


async def test_withdrawn_document_of_same_id_grants_no_access(callers: LimitedCallers) -> None:
    own = await callers.ingest("bob", text="x", external_id="board-2027")
    document = own.json()["document_id"]
    await callers.wait_until_final(own)
    await callers.wait_until_final(await callers.withdraw("bob", document))
    restricted = await callers.ingest(
        "admin", text=MINUTES, external_id="board-2027", readers=["user:ana"]
    )
    assert restricted.json()["document_id"] == document
    assert (await callers.amend("bob", document, readers=["user:bob"])).status_code == 404
    await callers.wait_until_final(restricted)
    await assert_hidden(callers, "bob", document)
    assert (await callers.fetch("ana", document, "/markdown")).text == MINUTES


async def test_amended_readers_protect_the_id_of_a_withdrawn_document(
    callers: LimitedCallers,
) -> None:
    receipt = await callers.ingest("admin", text=MINUTES, external_id="plan-2")
    await callers.wait_until_final(receipt)
    document = receipt.json()["document_id"]
    restricted = await callers.amend("admin", document, readers=["group:audit"])
    await callers.wait_until_final(restricted)
    await callers.wait_until_final(await callers.withdraw("admin", document))
    taken = await callers.ingest("ana", text="Mine.", external_id="plan-2")
    assert (taken.status_code, taken.json()["code"]) == (422, "EXTERNAL_ID_TAKEN")


async def test_earlier_upload_does_not_permit_overwriting(callers: LimitedCallers) -> None:
    receipt = await callers.ingest("ana", text="Draft.", external_id="plan-1")
    document = receipt.json()["document_id"]
    await callers.wait_until_final(receipt)
    await callers.wait_until_final(
        await callers.ingest("admin", text=MINUTES, external_id="plan-1", readers=["group:audit"])
    )
    overwritten = await callers.ingest("ana", text="Mine again.", external_id="plan-1")
    assert (overwritten.status_code, overwritten.json()["code"]) == (422, "EXTERNAL_ID_TAKEN")
    await assert_hidden(callers, "ana", document)
    assert (await callers.fetch("admin", document, "/markdown")).text == MINUTES


async def test_change_in_flight_cannot_undo_restriction(callers: LimitedCallers) -> None:
    receipt = await callers.ingest("admin", text=MINUTES, external_id="plan-1")
    await callers.wait_until_final(receipt)
    document = receipt.json()["document_id"]
    async with attack_as_ana(callers, document):
        restricted = await callers.amend("admin", document, readers=["group:audit"])
    await callers.wait_until_final(restricted)
    await assert_hidden(callers, "ana", document)
    found = await callers.fetch("admin", document)
    assert found.json()["readers"] == ["group:audit"]


@asynccontextmanager
async def attack_as_ana(callers: LimitedCallers, document: str) -> AsyncIterator[None]:
    """Change the document as Ana, without a pause, before, during and after the block."""
    is_restricted = asyncio.Event()

    async def attack(attempt: Callable[[], Awaitable[Any]]) -> None:
        while not is_restricted.is_set():
            await attempt()

    attempts: list[Callable[[], Awaitable[Any]]] = [
        lambda: callers.amend("ana", document, readers=["user:ana"]),
        lambda: callers.amend("ana", document, readers=["everyone"], tags=["mine"]),
    ]
    attacks = [asyncio.create_task(attack(attempt)) for attempt in attempts]
    await asyncio.sleep(0.2)
    yield
    await asyncio.sleep(0.3)
    is_restricted.set()
    await asyncio.gather(*attacks)


async def test_change_in_flight_cannot_undo_restriction_of_a_producer(
    callers: LimitedCallers, database: str
) -> None:
    document = str(make_document_id("default", "", "plan-1"))
    pool = await open_pool(database, size=2, name="producer")

    async def send(data: DocumentReceived | DocumentAmended, event_id: str) -> None:
        record = await build_raw_record(
            data, event_id, source="erp", time=datetime.now(UTC), codec=Codec()
        )
        await PgLog(pool).append([record])

    async def fetch_readers() -> Any:
        return (await callers.fetch("admin", document)).json().get("readers")

    async def is_searchable() -> bool:
        return (await callers.fetch("ana", document, "/markdown")).status_code == 200

    try:
        await send(DocumentReceived(external_id="plan-1", content=Content(text=MINUTES)), "1")
        await eventually(is_searchable)
        async with attack_as_ana(callers, document):
            await send(DocumentAmended(external_id="plan-1", readers=["group:audit"]), "2")
        await eventually(fetch_readers, lambda readers: readers == ["group:audit"])
        await assert_hidden(callers, "ana", document)
        # Neither do changes that were admitted before and are projected after the restriction.
        await send(DocumentAmended(external_id="plan-1", title="Last"), "3")
        await eventually(
            lambda: callers.fetch("admin", document), lambda found: found.json()["title"] == "Last"
        )
        assert await fetch_readers() == ["group:audit"]
    finally:
        await close_pool(pool)


def _make_bodies(count: int) -> list[dict[str, Any]]:
    return [{"text": f"Report {number}.", "external_id": "report"} for number in range(count)]


async def test_one_of_ten_bodies_gets_an_idempotency_key(callers: LimitedCallers) -> None:
    headers = {"Idempotency-Key": "import-1"}
    responses = await asyncio.gather(
        *(
            callers.clients["admin"].post("/v1/ingest", json=body, headers=headers)
            for body in _make_bodies(10)
        )
    )
    accepted = [response for response in responses if response.status_code == 202]
    refused = [response for response in responses if response.status_code == 422]
    assert (len(accepted), len(refused)) == (1, 9)
    assert {response.json()["code"] for response in refused} == {"IDEMPOTENCY_KEY_REUSED"}
    await callers.wait_until_final(accepted[0])
    text = (await callers.fetch("admin", accepted[0].json()["document_id"], "/markdown")).text
    assert text == _make_bodies(10)[responses.index(accepted[0])]["text"]


async def test_equal_bodies_with_one_idempotency_key_are_one_job(callers: LimitedCallers) -> None:
    headers = {"Idempotency-Key": "import-2"}
    responses = await asyncio.gather(
        *(
            callers.clients["admin"].post("/v1/ingest", json=_make_bodies(1)[0], headers=headers)
            for _ in range(5)
        )
    )
    assert {response.status_code for response in responses} == {202}, [r.text for r in responses]
    assert len({response.json()["ingestion_job_id"] for response in responses}) == 1
    changed = _make_bodies(1)[0] | {"tags": ["other"]}
    response = await callers.clients["admin"].post("/v1/ingest", json=changed, headers=headers)
    assert response.json()["code"] == "IDEMPOTENCY_KEY_REUSED"


async def test_private_ids_cannot_be_computed_by_others(callers: LimitedCallers) -> None:
    first = await callers.ingest("ana", text=MINUTES)
    await callers.wait_until_final(first)
    again = await callers.ingest("ana", text=MINUTES)
    assert again.json()["document_id"] == first.json()["document_id"]
    caller_hash, text_hash = sha256_hex(b"key:ana"), sha256_hex(MINUTES.encode())
    guesses = [
        f"{caller_hash[:16]}/{sha256_hex(text_hash.encode())}",
        f"{caller_hash[:16]}/{text_hash}",
        f"private/{sha256_hex(f'key:ana{chr(10)}{text_hash}'.encode())}",
    ]
    for guess in guesses:
        probe = await callers.ingest("bob", text="x", external_id=guess)
        assert probe.status_code == 202, probe.text
        assert probe.json()["document_id"] != first.json()["document_id"]


async def test_private_id_of_an_earlier_version_keeps_its_document(callers: LimitedCallers) -> None:
    text_hash = sha256_hex(MINUTES.encode())
    earlier_id = f"{sha256_hex(b'key:ana')[:16]}/{sha256_hex(text_hash.encode())}"
    earlier = await callers.ingest("ana", text=MINUTES, external_id=earlier_id)
    await callers.wait_until_final(earlier)
    again = await callers.ingest("ana", text=MINUTES)
    assert again.json()["document_id"] == earlier.json()["document_id"]


async def test_limited_admin_gets_no_metrics_of_all_tenants(callers: LimitedCallers) -> None:
    refused = await callers.request("board", "GET", "/metrics")
    assert (refused.status_code, refused.json()["code"]) == (403, "LIMITED_TO_READERS")
    assert (await callers.request("admin", "GET", "/metrics")).status_code == 200
