"""Bounds of the HTTP side with the real services behind it."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator

import obstore
import pytest
from obstore.exceptions import GenericError

from anabranch.composition.overrides import Overrides
from anabranch.doctor.machine import data_folder
from anabranch.settings import Settings
from anabranch.settings_loading import load_settings
from tests.journey.conftest import World, running

SCARCE = "the reserve"


@pytest.fixture
async def scarce(settings: Settings, database: str, overrides: Overrides) -> AsyncIterator[World]:
    """A reserve that the disk of this machine does not have."""
    more = shutil.disk_usage("/").total * 1000
    async with running(load_settings(data_dir=settings.data_dir, sets=[f"api.disk_reserve={more}"]), database, overrides) as found:
        yield found


async def test_upload_below_the_disk_reserve_gets_507(scarce: World) -> None:
    for request in ({"files": {"file": ("a.md", b"# Hi")}}, {"json": {"text": "hi"}}, {"json": {"url": "http://192.0.2.1/a"}}):
        response = await scarce.http.post("/v1/ingest", **request)
        assert (response.status_code, response.json()["code"]) == (507, "NO_SPACE"), response.text
    ready = await scarce.http.get("/readyz")
    disk = ready.json()["dependencies"]["disk"]
    assert (ready.status_code, SCARCE in disk["detail"], bool(disk["remedy"])) == (200, True, True)
    assert (await scarce.http.post("/v1/search", json={"query": "anything"})).status_code == 200
    warning = (await data_folder(scarce.settings))[-1]
    assert (warning.status, SCARCE in warning.detail) == ("warn", True)


async def test_full_blob_store_gets_507(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def full(*_: object, **__: object) -> None:
        raise GenericError("Generic LocalFileSystem error: Unable to copy data to file: No space left on device (os error 28)")

    monkeypatch.setattr(obstore, "put_async", full)
    for request in ({"files": {"file": ("a.md", b"# Hi")}}, {"json": {"text": "hi"}}):
        response = await world.http.post("/v1/ingest", **request)
        assert (response.status_code, response.json()["code"]) == (507, "NO_SPACE"), response.text


async def test_erasure_is_known_right_after_its_request(settings: Settings, database: str, overrides: Overrides) -> None:
    async with running(settings, database, overrides) as world:
        receipt = await world.searchable("# Tide tables\n\nHigh water at Marlow is at noon.")
        for _ in range(5):
            asked = await world.http.post("/v1/erasures", json={"scope": "document", "name": receipt["document_id"]})
            if asked.status_code == 404:  # the one before is done
                break
            shown = await world.http.get(f"/v1/erasures/{asked.json()['receipt_id']}")
            assert (shown.status_code, shown.json()["state"] in ("running", "done")) == (200, True)
            assert asked.json()["receipt_id"] in [item["receipt_id"] for item in (await world.http.get("/v1/erasures")).json()["items"]]
