"""Whatever comes in, the client gets a clear error or the document fails with a code and a remedy, and the next document goes through."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from anabranch.composition.overrides import Overrides
from anabranch.settings import Settings
from tests.journey import bad_files
from tests.journey.conftest import World, running

GOOD = "Herons stand still for hours and then strike."


@pytest.fixture
async def world(settings: Settings, database: str, overrides: Overrides) -> AsyncIterator[World]:
    limits = settings.ingest.model_copy(update={"max_bytes": 20_000_000, "max_pages": 100})
    async with running(settings.model_copy(update={"ingest": limits}), database, overrides) as found:
        yield found


async def assert_next_goes_through(world: World) -> None:
    receipt = await world.ingest(GOOD, "good.md", external_id="good", force="true")
    assert (await world.ended(receipt))["state"] == "searchable"


async def failure(world: World, body: bytes, filename: str, **fields: Any) -> dict[str, Any]:
    """The error of a document that was accepted and then failed."""
    status = await world.ended(await world.ingest(body, filename, **fields))
    assert status["state"] == "failed", status
    (error,) = [line["error"] for line in status["stages"] if line.get("error")]
    assert error["code"] != "BUG", error
    assert error["detail"]
    assert error["remedy"]
    return dict(error)


@pytest.mark.parametrize(
    ("body", "filename"),
    [
        (bad_files.pdf()[:400], "truncated.pdf"),
        (b"%PDF-1.7\n" + b"\x00" * 200, "hollow.pdf"),
        (bad_files.encrypted_pdf(), "encrypted.pdf"),
        (bad_files.empty_pdf(), "no-pages.pdf"),
        (bad_files.long_pdf(101), "too-long.pdf"),
        (b"\x89PNG\r\n\x1a\n" + b"\x00" * 50, "broken.png"),
        (b"PK\x03\x04" + b"\xff" * 100, "broken.docx"),
        (bytes(range(256)) * 20, "noise.bin"),
    ],
)
async def test_what_cannot_be_read_fails_with_code_and_remedy_and_the_next_goes_through(world: World, body: bytes, filename: str) -> None:
    error = await failure(world, body, filename)
    assert filename in error["detail"] or error["code"]
    await assert_next_goes_through(world)


async def test_a_zip_bomb_fails_and_the_next_goes_through(world: World) -> None:
    bomb = await asyncio.to_thread(bad_files.zip_bomb)
    await failure(world, bomb, "bomb.docx")
    await assert_next_goes_through(world)


async def test_nothing_at_all_is_refused_at_once(world: World) -> None:
    for call in (
        world.http.post("/v1/ingest", files={"file": ("empty.pdf", b"")}),
        world.http.post("/v1/ingest", json={"text": ""}),
        world.http.post("/v1/ingest", json={}),
    ):
        response = await call
        assert response.status_code == 422
        assert response.json()["remedy"]
    await assert_next_goes_through(world)


async def test_a_wrong_extension_does_not_matter_for_what_can_be_read(world: World) -> None:
    receipt = await world.searchable(bad_files.pdf(text="Kingfishers nest in river banks."), "actually-a-pdf.docx")
    found = await world.search("kingfishers nest")
    assert [result["document_id"] for result in found] == [receipt["document_id"]]


async def test_nul_bytes_in_a_text_do_no_harm(world: World) -> None:
    status = await world.ended(await world.ingest(b"Bitterns boom in the reeds.\x00\x00 Quietly.", "nul.txt"))
    assert status["state"] in ("searchable", "failed")
    assert all((line.get("error") or {}).get("code") != "BUG" for line in status["stages"])
    await assert_next_goes_through(world)


@pytest.mark.parametrize(
    "url",
    ["file:///etc/passwd", "ftp://example.org/x", "gopher://x", "http://", "javascript:alert(1)"],
)
async def test_what_is_no_web_address_is_refused_at_once(world: World, url: str) -> None:
    response = await world.http.post("/v1/ingest", json={"url": url})
    assert (response.status_code, response.json()["code"]) == (422, "FORBIDDEN_ADDRESS")


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:1/x",
        "http://localhost/x",
        "http://169.254.169.254/latest/meta-data",
        "http://[::1]/x",
        "http://2130706433/x",
        "http://0x7f000001/x",
        "http://[::ffff:127.0.0.1]/x",
        "http://10.0.0.1/x",
    ],
)
async def test_an_address_inside_is_never_fetched(world: World, url: str) -> None:
    response = await world.http.post("/v1/ingest", json={"url": url})
    assert response.status_code == 202
    status = await world.ended(response.json())
    (error,) = [line["error"] for line in status["stages"] if line.get("error")]
    assert (status["state"], error["code"]) == ("failed", "FORBIDDEN_ADDRESS")
    assert error["remedy"]


async def test_a_redirect_to_an_address_inside_is_not_followed(settings: Settings, database: str, overrides: Overrides) -> None:
    async def redirect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:9/secret\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(redirect, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    allowed = settings.ingest.model_copy(update={"url_allow": (f"127.0.0.1:{port}",)})
    async with server, running(settings.model_copy(update={"ingest": allowed}), database, overrides) as world:
        status = await world.ended((await world.http.post("/v1/ingest", json={"url": f"http://127.0.0.1:{port}/x"})).json())
    (error,) = [line["error"] for line in status["stages"] if line.get("error")]
    assert error["code"] == "FORBIDDEN_ADDRESS"


async def test_a_claim_of_ten_gigabytes_is_refused_at_once(world: World) -> None:
    async def body() -> AsyncIterator[bytes]:
        yield b"x"

    headers = {"Content-Length": str(10 * 1024**3), "Content-Type": "multipart/form-data; boundary=b"}
    response = await world.http.post("/v1/ingest", content=body(), headers=headers)
    assert (response.status_code, response.json()["code"]) == (413, "TOO_LARGE")


@pytest.mark.parametrize("key", ["uploads/other/x", "elsewhere/x", "uploads/default/../other/x", "/etc/passwd", "uploads/default/../../x"])
async def test_a_storage_key_outside_the_tenants_uploads_is_forbidden(world: World, key: str) -> None:
    response = await world.http.post("/v1/ingest", json={"storage_key": key})
    assert (response.status_code, response.json()["code"]) == (403, "FORBIDDEN_KEY")


async def test_a_storage_key_without_a_blob_is_not_found(world: World) -> None:
    response = await world.http.post("/v1/ingest", json={"storage_key": "uploads/default/nothing"})
    assert (response.status_code, response.json()["code"]) == (404, "NO_SUCH_BLOB")
