"""Bad input gets a clear error or a failed document, and does not block the next one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from anabranch.config.overrides import Overrides
from anabranch.config.settings import Settings
from tests.support import broken_files
from tests.support.api_world import ApiWorld, run_system
from tests.support.shared_world import module_database, world

__all__ = ["module_database", "world"]
pytestmark = pytest.mark.asyncio(loop_scope="module")

VALID_TEXT = "Herons stand still for hours and then strike."


@pytest.fixture(scope="module")
def world_sets() -> list[str]:
    return ["ingest.max_bytes=20000000", "ingest.max_pages=100"]


async def assert_next_document_is_searchable(world: ApiWorld) -> None:
    receipt = await world.ingest(VALID_TEXT, "good.md", external_id="good", force="true")
    assert (await world.wait_until_final(receipt))["state"] == "searchable"


async def ingest_and_get_error(
    world: ApiWorld, body: bytes, filename: str, **fields: Any
) -> dict[str, Any]:
    """Ingest a document that is accepted and then fails; return its error."""
    status = await world.wait_until_final(await world.ingest(body, filename, **fields))
    assert status["state"] == "failed", status
    (error,) = [line["error"] for line in status["stages"] if line.get("error")]
    assert error["code"] != "BUG", error
    assert error["detail"]
    assert error["remedy"]
    return dict(error)


@pytest.mark.parametrize(
    ("body", "filename"),
    [
        (broken_files.make_pdf()[:400], "truncated.pdf"),
        (b"%PDF-1.7\n" + b"\x00" * 200, "hollow.pdf"),
        (broken_files.make_encrypted_pdf(), "encrypted.pdf"),
        (broken_files.make_empty_pdf(), "no-pages.pdf"),
        (broken_files.make_blank_pdf(101), "too-long.pdf"),
        (b"\x89PNG\r\n\x1a\n" + b"\x00" * 50, "broken.png"),
        (b"PK\x03\x04" + b"\xff" * 100, "broken.docx"),
        (bytes(range(256)) * 20, "noise.bin"),
    ],
)
async def test_unreadable_file_fails_with_code_and_remedy(
    world: ApiWorld, body: bytes, filename: str
) -> None:
    error = await ingest_and_get_error(world, body, filename)
    assert filename in error["detail"] or error["code"]
    await assert_next_document_is_searchable(world)


async def test_zip_bomb_fails_without_blocking_next_document(world: ApiWorld) -> None:
    bomb = await asyncio.to_thread(broken_files.make_zip_bomb)
    await ingest_and_get_error(world, bomb, "bomb.docx")
    await assert_next_document_is_searchable(world)


async def test_empty_upload_is_rejected(world: ApiWorld) -> None:
    for call in (
        world.http.post("/v1/ingest", files={"file": ("empty.pdf", b"")}),
        world.http.post("/v1/ingest", json={"text": ""}),
        world.http.post("/v1/ingest", json={}),
    ):
        response = await call
        assert response.status_code == 422
        assert response.json()["remedy"]
    await assert_next_document_is_searchable(world)


async def test_wrong_file_extension_is_ignored(world: ApiWorld) -> None:
    receipt = await world.ingest_until_searchable(
        broken_files.make_pdf(text="Kingfishers nest in river banks."), "actually-a-pdf.docx"
    )
    found = await world.search("kingfishers nest", channels=["lexical"])
    assert [result["document_id"] for result in found] == [receipt["document_id"]]


async def test_nul_bytes_cause_no_internal_error(world: ApiWorld) -> None:
    status = await world.wait_until_final(
        await world.ingest(b"Bitterns boom in the reeds.\x00\x00 Quietly.", "nul.txt")
    )
    assert status["state"] in ("searchable", "failed")
    assert all((line.get("error") or {}).get("code") != "BUG" for line in status["stages"])
    await assert_next_document_is_searchable(world)


@pytest.mark.parametrize(
    "url",
    ["file:///etc/passwd", "ftp://example.org/x", "gopher://x", "http://", "javascript:alert(1)"],
)
async def test_non_http_url_is_rejected(world: ApiWorld, url: str) -> None:
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
async def test_internal_address_is_not_fetched(world: ApiWorld, url: str) -> None:
    response = await world.http.post("/v1/ingest", json={"url": url})
    assert response.status_code == 202
    status = await world.wait_until_final(response.json())
    (error,) = [line["error"] for line in status["stages"] if line.get("error")]
    assert (status["state"], error["code"]) == ("failed", "FORBIDDEN_ADDRESS")
    assert error["remedy"]


async def test_redirect_to_internal_address_is_not_followed(
    settings: Settings, database: str, overrides: Overrides
) -> None:
    async def redirect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(
            b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:9/secret\r\nContent-Length: 0\r\n"
            b"Connection: close\r\n\r\n"
        )
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(redirect, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    allowed = settings.ingest.model_copy(update={"url_allow": (f"127.0.0.1:{port}",)})
    async with (
        server,
        run_system(settings.model_copy(update={"ingest": allowed}), database, overrides) as world,
    ):
        status = await world.wait_until_final(
            (await world.http.post("/v1/ingest", json={"url": f"http://127.0.0.1:{port}/x"})).json()
        )
    (error,) = [line["error"] for line in status["stages"] if line.get("error")]
    assert error["code"] == "FORBIDDEN_ADDRESS"


@pytest.mark.parametrize(
    "key",
    [
        "uploads/other/x",
        "elsewhere/x",
        "uploads/default/../other/x",
        "/etc/passwd",
        "uploads/default/../../x",
    ],
)
async def test_storage_key_outside_tenant_uploads_is_forbidden(world: ApiWorld, key: str) -> None:
    response = await world.http.post("/v1/ingest", json={"storage_key": key})
    assert (response.status_code, response.json()["code"]) == (403, "FORBIDDEN_KEY")


async def test_missing_storage_key_returns_404(world: ApiWorld) -> None:
    response = await world.http.post("/v1/ingest", json={"storage_key": "uploads/default/nothing"})
    assert (response.status_code, response.json()["code"]) == (404, "NO_SUCH_BLOB")
