"""Limits of the HTTP API with the real services behind it."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import obstore
import pytest
from obstore.exceptions import GenericError

import engines.blobs
from anabranch.config.loader import load_settings
from anabranch.config.overrides import Overrides
from anabranch.config.settings import Settings
from anabranch.doctor.machine import check_data_folder
from tests.fakes.web_server import fake_web
from tests.support.api_world import ApiWorld, run_system

DISK_RESERVE_TEXT = "the reserve"


@pytest.fixture
async def low_disk_world(
    settings: Settings, database: str, overrides: Overrides
) -> AsyncIterator[ApiWorld]:
    """Require more free disk space than this machine has."""
    more = shutil.disk_usage("/").total * 1000
    async with run_system(
        load_settings(data_dir=settings.data_dir, sets=[f"api.disk_reserve={more}"]),
        database,
        overrides,
    ) as found:
        yield found


async def test_upload_below_disk_reserve_returns_507(low_disk_world: ApiWorld) -> None:
    for request in (
        {"files": {"file": ("a.md", b"# Hi")}},
        {"json": {"text": "hi"}},
        {"json": {"url": "http://192.0.2.1/a"}},
    ):
        response = await low_disk_world.http.post("/v1/ingest", **request)
        assert (response.status_code, response.json()["code"]) == (507, "NO_SPACE"), response.text
    ready = await low_disk_world.http.get("/readyz")
    disk = ready.json()["dependencies"]["disk"]
    assert (ready.status_code, DISK_RESERVE_TEXT in disk["detail"], bool(disk["remedy"])) == (
        200,
        True,
        True,
    )
    assert (
        await low_disk_world.http.post("/v1/search", json={"query": "anything"})
    ).status_code == 200
    warning = (await check_data_folder(low_disk_world.settings))[-1]
    assert (warning.state, DISK_RESERVE_TEXT in warning.detail) == ("warn", True)


async def test_full_blob_store_returns_507(
    world: ApiWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_: object, **__: object) -> None:
        raise GenericError(
            "Generic LocalFileSystem error: Unable to copy data to file: No space left "
            "on device (os error 28)"
        )

    def full_folder(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(obstore, "put_async", full)
    monkeypatch.setattr(engines.blobs, "write_file", full_folder)
    for request in (
        {"files": {"file": ("a.md", b"# Hi")}},
        # Large enough for obstore.
        {"files": {"file": ("b.md", b"# Hi\n" * 20_000)}},
        {"json": {"text": "hi"}},
    ):
        response = await world.http.post("/v1/ingest", **request)
        assert (response.status_code, response.json()["code"]) == (507, "NO_SPACE"), response.text


async def test_erasure_is_listed_immediately_after_request(
    settings: Settings, database: str, overrides: Overrides
) -> None:
    async with run_system(settings, database, overrides) as world:
        receipt = await world.ingest_until_searchable(
            "# Tide tables\n\nHigh water at Marlow is at noon."
        )
        for _ in range(5):
            response = await world.http.post(
                "/v1/erasures", json={"scope": "document", "name": receipt["document_id"]}
            )
            if response.status_code == 404:  # the one before is done
                break
            shown = await world.http.get(f"/v1/erasures/{response.json()['receipt_id']}")
            assert (shown.status_code, shown.json()["state"] in ("running", "done")) == (200, True)
            assert response.json()["receipt_id"] in [
                item["receipt_id"]
                for item in (await world.http.get("/v1/erasures")).json()["items"]
            ]


SLOW_URL_COUNT = 100
BUSY_MACHINE_S = 15.0
"""Bound of an upload beside other work. One that waited for the slow URLs would never end."""


async def test_slow_urls_do_not_delay_an_upload(
    tmp_path: Path, database: str, overrides: Overrides
) -> None:
    with fake_web() as web:
        settings = load_settings(
            data_dir=tmp_path / "data",
            sets=["logging.level=error", f"ingest.url_allow={urlsplit(web).netloc}"],
        )
        async with run_system(settings, database, overrides) as world:
            await world.ingest_until_searchable("# Warm-up\n\nEngines are loaded now.")
            alone_s = await measure_ingest_s(world, "alone")
            for number in range(SLOW_URL_COUNT):
                response = await world.http.post("/v1/ingest", json={"url": f"{web}/drip/{number}"})
                assert response.status_code == 202, response.text
            beside_s = await measure_ingest_s(world, "beside")
            waiting = (
                await world.http.get("/v1/documents", params={"state": "searchable", "limit": 200})
            ).json()["items"]
            assert len(waiting) == 3, "the slow ones are still on their way"
    assert beside_s < 4 * alone_s + BUSY_MACHINE_S, (alone_s, beside_s)


async def measure_ingest_s(world: ApiWorld, name: str) -> float:
    started = time.monotonic()
    await world.ingest_until_searchable(f"# {name}\n\nThe weir of {name} was mended in 1999.")
    return time.monotonic() - started


async def test_url_with_password_is_rejected(world: ApiWorld) -> None:
    for body in (
        {"url": "http://user:s3cret@192.0.2.1/a"},
        {"text": "x", "source_uri": "http://user:s3cret@192.0.2.1/a"},
    ):
        response = await world.http.post("/v1/ingest", json=body)
        assert (response.status_code, response.json()["code"]) == (422, "CREDENTIALS_IN_URL")
        assert "s3cret" not in response.text


async def test_presigned_url_signature_is_redacted_in_responses(
    tmp_path: Path, database: str, overrides: Overrides
) -> None:
    with fake_web() as web:
        settings = load_settings(
            data_dir=tmp_path / "data",
            sets=["logging.level=error", f"ingest.url_allow={urlsplit(web).netloc}"],
        )
        async with run_system(settings, database, overrides) as world:
            for path in (
                "odd?content-type=text/plain&X-Amz-Signature=s3cret",
                "status/404?token=s3cret",
            ):
                receipt = (
                    await world.http.post("/v1/ingest", json={"url": f"{web}/{path}"})
                ).json()
                await world.wait_until_final(receipt)
            found = await world.search("data")
            shown = [
                await world.http.get(path)
                for path in (
                    "/v1/documents",
                    "/v1/dead-letters",
                    "/v1/events?after=begin&limit=500",
                )
            ]
            assert found[0]["source_uri"].endswith("X-Amz-Signature=REDACTED")
            assert "s3cret" not in str(found) + "".join(response.text for response in shown)
            assert shown[1].json()["items"][0]["code"] == "FETCH_FAILED"
