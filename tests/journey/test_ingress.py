"""Documents that fail at ingress or have not reached it can be found and withdrawn."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import httpx2
import pytest

from anabranch.composition.api import prepare_api
from anabranch.composition.worker import prepare_worker
from anabranch.config.overrides import Overrides
from anabranch.config.settings import Settings
from schemas.events import Content, DocumentReceived
from schemas.ids import make_document_id
from schemas.topics import Record
from streams.codec import Codec
from streams.publisher import build_raw_record
from tests.support.api_client import api_client
from tests.support.api_world import ApiWorld, run_system
from tests.support.erasure import erase
from tests.support.eventually import eventually

BROKEN_PDF = b"%PDF-1.7\nthat is all there is"
NAME_FIELDS = ("external_id", "title", "filename", "source_uri")
HEADERS = {
    "ce_specversion": b"1.0",
    "ce_id": b"e-7",
    "ce_source": b"crm",
    "ce_type": b"document.received.v1",
    "content-type": b"application/json",
}


async def get(world: ApiWorld, path: str, **parameters: str) -> dict[str, Any]:
    response = await world.http.get(path, params=parameters)
    assert response.status_code == 200, response.text
    return dict(response.json())


async def wait_for_state(world: ApiWorld, document: str, state: str) -> dict[str, Any]:
    return await eventually(
        lambda: world.fetch_json(f"/v1/documents/{document}"),
        lambda found: found and found["state"] == state,
    )


async def test_document_failed_at_ingress_is_listed_and_counted(world: ApiWorld) -> None:
    receipt = await world.ingest(BROKEN_PDF, "torn.pdf", external_id="torn")
    assert (await world.wait_until_final(receipt))["state"] == "failed"
    await world.ingest_until_searchable("A whole note about lighthouses.", external_id="whole")
    [listed] = (await get(world, "/v1/documents", state="failed"))["items"]
    assert (listed["document_id"], listed["external_id"], listed["state"]) == (
        receipt["document_id"],
        "torn",
        "failed",
    )
    document = await get(world, f"/v1/documents/{receipt['document_id']}")
    assert document["state"] == "failed"
    assert document["stages"][0]["error"] == listed["error"]
    assert listed["error"]["code"] and listed["error"]["remedy"]
    assert {item["external_id"] for item in (await get(world, "/v1/documents"))["items"]} == {
        "torn",
        "whole",
    }
    assert [
        item["external_id"]
        for item in (await get(world, "/v1/documents", external_id="torn"))["items"]
    ] == ["torn"]
    health = await get(world, "/health")
    assert health["documents"] == {"failed": 1, "searchable": 1}
    assert health["dead_letters"] == {
        "total": 1,
        "stages": {"receive": 1},
        "list": "/v1/dead-letters",
    }
    [dead_letter] = (await get(world, health["dead_letters"]["list"]))["items"]
    assert dead_letter["document_id"] == receipt["document_id"]


async def test_document_rejected_at_ingress_keeps_names_collection_and_tags(
    world: ApiWorld,
) -> None:
    receipt = await world.ingest(
        BROKEN_PDF,
        "torn.pdf",
        external_id="torn",
        collection="tides",
        tags=["old", "torn"],
        title="Torn",
    )
    await world.wait_until_final(receipt)
    for filters in (
        {"collection": "tides"},
        {"tag": "old"},
        {"collection": "tides", "tag": "torn", "state": "failed"},
    ):
        [listed] = (await get(world, "/v1/documents", **filters))["items"]
        assert (listed["collection"], listed["tags"], listed["title"], listed["filename"]) == (
            "tides",
            ["old", "torn"],
            "Torn",
            "torn.pdf",
        )
    for filters in ({"collection": "boats"}, {"tag": "new"}):
        assert (await get(world, "/v1/documents", **filters))["items"] == []
    shown = await get(world, f"/v1/documents/{receipt['document_id']}")
    assert (shown["collection"], shown["tags"]) == ("tides", ["old", "torn"])
    assert (await erase(world, "collection", "tides"))["documents"] == 1
    assert (await get(world, "/v1/documents"))["items"] == []


async def test_failed_external_document_is_found_by_external_id(world: ApiWorld) -> None:
    event = DocumentReceived(external_id="theirs", content=Content(base64="%%%"))
    await world.worker.storage.log.append(
        [
            await build_raw_record(
                event, "e-1", source="crm", time=Overrides().clock(), codec=Codec()
            )
        ]
    )
    document = str(make_document_id("default", "", "theirs"))
    failed = await wait_for_state(world, document, "failed")
    assert failed["stages"][0]["error"]["code"] == "NOT_BASE64"
    [listed] = (await get(world, "/v1/documents", external_id="theirs", state="failed"))["items"]
    assert (listed["document_id"], listed["external_id"], listed["source"]) == (
        document,
        "theirs",
        "crm",
    )


async def test_fixed_document_is_no_longer_listed_as_failed(world: ApiWorld) -> None:
    receipt = await world.ingest(BROKEN_PDF, "torn.pdf", external_id="torn")
    await world.wait_until_final(receipt)
    await world.ingest_until_searchable("A page about tides.", external_id="torn")
    assert (await get(world, "/v1/documents", state="failed"))["items"] == []
    assert (await get(world, f"/v1/documents/{receipt['document_id']}"))["state"] == "searchable"
    assert (await get(world, "/health"))["documents"] == {"searchable": 1}


async def test_document_failed_at_ingress_can_be_withdrawn(world: ApiWorld) -> None:
    receipt = await world.ingest(BROKEN_PDF, "torn.pdf", external_id="torn")
    await world.wait_until_final(receipt)
    assert (await world.http.delete(f"/v1/documents/{receipt['document_id']}")).status_code == 202
    await wait_for_state(world, receipt["document_id"], "withdrawn")
    assert (await get(world, "/v1/documents", state="failed"))["items"] == []


@pytest.mark.parametrize(
    "fields", [{}, {"external_id": "named"}], ids=["by its bytes", "by its external id"]
)
async def test_delete_wins_over_unprocessed_upload(
    settings: Settings, database: str, overrides: Overrides, fields: dict[str, str]
) -> None:
    receipt = await upload_and_delete(settings, database, overrides, fields)
    async with run_system(settings, database, overrides) as world:
        await wait_for_state(world, receipt["document_id"], "withdrawn")
        assert (await world.wait_until_final(receipt))["state"] in ("withdrawn", "superseded")
        assert await world.search("otters holding hands") == []
        assert (await get(world, "/v1/documents"))["items"] == []
        assert (await get(world, "/v1/dead-letters", stage="receive"))["items"] == []
        assert await world.worker.storage.pool.fetchval("select count(*) from visible") == 0


async def upload_and_delete(
    settings: Settings, database: str, overrides: Overrides, fields: dict[str, str]
) -> dict[str, Any]:
    """Upload and delete while no worker runs."""
    async with prepare_worker(settings, database, overrides=overrides):
        pass
    async with (
        prepare_api(settings, database, overrides=overrides) as services,
        api_client(services) as http,
    ):
        upload = await http.post(
            "/v1/ingest", files={"file": ("note.md", b"Otters sleep holding hands.")}, data=fields
        )
        document = UUID(upload.json()["document_id"])
        assert (await http.get(f"/v1/documents/{document}")).json()["state"] == "accepted"
        deleted = await http.delete(f"/v1/documents/{document}")
        assert (deleted.status_code, deleted.json()["document_id"]) == (202, str(document))
        return dict(upload.json())


async def test_delete_wins_over_upload_in_progress(world: ApiWorld) -> None:
    receipt = await world.ingest("Badgers dig setts with many doors.", external_id="badgers")
    assert (await world.http.delete(f"/v1/documents/{receipt['document_id']}")).status_code == 202
    await wait_for_state(world, receipt["document_id"], "withdrawn")
    await world.wait_until_final(receipt)
    assert await world.search("badgers dig setts") == []


def list_staged_files(world: ApiWorld) -> list[str]:
    folder = world.settings.data_dir / "blobs" / "uploads"
    return [str(path) for path in folder.rglob("*") if path.is_file()]


async def test_staged_files_are_deleted_after_ingest(world: ApiWorld) -> None:
    receipt = await world.ingest_until_searchable(
        "A file about marmots.", "a.md", external_id="file"
    )
    text = await world.http.post(
        "/v1/ingest", json={"text": "A text about marmots.", "external_id": "text"}
    )
    await world.wait_until_final(text.json())
    assert list_staged_files(world) == []
    back = await world.http.get(f"/v1/documents/{receipt['document_id']}/file")
    assert back.text == "A file about marmots."


async def test_staged_file_of_duplicate_upload_is_deleted(world: ApiWorld) -> None:
    async def send() -> httpx2.Response:
        return await world.http.post(
            "/v1/ingest",
            files={"file": ("a.md", b"Twice told.")},
            headers={"Idempotency-Key": "told"},
        )

    first = await send()
    assert (await world.wait_until_final(first.json()))["state"] == "searchable"
    assert (await send()).json()["ingestion_job_id"] == first.json()["ingestion_job_id"]
    assert list_staged_files(world) == []
    assert (await get(world, "/v1/dead-letters", stage="receive"))["items"] == []


@pytest.mark.parametrize(
    ("body", "fields"),
    [(b"x", {"metadata": "no json"}), (b"x", {"force": "perhaps"}), (b"", {})],
    ids=["no JSON", "no boolean", "empty"],
)
async def test_staged_file_of_rejected_upload_is_deleted(
    world: ApiWorld, body: bytes, fields: dict[str, str]
) -> None:
    response = await world.http.post("/v1/ingest", files={"file": ("a.md", body)}, data=fields)
    assert response.status_code == 422
    assert list_staged_files(world) == []


async def test_staged_file_of_other_upload_is_forbidden(world: ApiWorld) -> None:
    response = await world.http.post("/v1/ingest", json={"storage_key": "uploads/default/api/x/y"})
    assert (response.status_code, response.json()["code"]) == (403, "FORBIDDEN_KEY")


async def test_document_failed_at_ingress_shows_fields_of_event(world: ApiWorld) -> None:
    address = "http://127.0.0.1:1/report"
    by_address = (
        await world.http.post("/v1/ingest", json={"url": address, "title": "A report"})
    ).json()
    by_bytes = await world.ingest(BROKEN_PDF, "torn.pdf", title="Torn apart")
    broken = Record(
        "raw",
        None,
        b'{"external_id": "theirs", "filename": "scan\\u0000.pdf", "title": 7, "content": {"url": '
        b'"a", "text": "b"}}',
        HEADERS,
    )
    await world.worker.storage.log.append([broken])
    theirs = str(make_document_id("default", "", "theirs"))
    expected = {
        by_address["document_id"]: (None, "A report", None, address),
        by_bytes["document_id"]: (None, "Torn apart", "torn.pdf", None),
        theirs: ("theirs", "scan\ufffd.pdf", "scan\ufffd.pdf", None),
    }
    for document in expected:
        await wait_for_state(world, document, "failed")
    listed = (await get(world, "/v1/documents", state="failed"))["items"]
    assert {
        item["document_id"]: tuple(item[name] for name in NAME_FIELDS) for item in listed
    } == expected
    found = await get(world, f"/v1/documents/{theirs}")
    assert tuple(found[name] for name in NAME_FIELDS) == expected[theirs]
    letters = {
        letter["filename"]: letter for letter in (await get(world, "/v1/dead-letters"))["items"]
    }
    assert {name: letters[name]["title"] for name in letters} == {
        None: "A report",
        "torn.pdf": "Torn apart",
        "scan\ufffd.pdf": None,
    }
    assert (letters[None]["source_uri"], letters["scan\ufffd.pdf"]["external_id"]) == (
        address,
        "theirs",
    )
