"""Errors about broken files name no path of the server."""

from __future__ import annotations

import io
import sysconfig
import tempfile
import zipfile
from pathlib import Path

from PIL import Image

from tests.support.api_world import ApiWorld
from tests.support.broken_files import make_empty_pdf, make_encrypted_pdf, make_pdf


def make_image(kind: str) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (64, 64), "white").save(buffer, kind)
    return buffer.getvalue()


def make_office_file(part: str, content: bytes = b"<not-xml") -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
        archive.writestr(part, content)
    return buffer.getvalue()


def truncate(body: bytes) -> bytes:
    return body[: len(body) // 2]


BROKEN_FILES = {
    "cut.pdf": truncate(make_pdf(3)),
    "head.pdf": b"%PDF-1.7\n%%EOF",
    "locked.pdf": make_encrypted_pdf(),
    "empty.pdf": make_empty_pdf(),
    **{
        f"cut.{kind.lower()}": truncate(make_image(kind))
        for kind in ("PNG", "JPEG", "TIFF", "WEBP", "GIF", "BMP")
    },
    "head.png": b"\x89PNG\r\n\x1a\n" + bytes(64),
    "head.jpg": b"\xff\xd8\xff\xe0" + bytes(64),
    "head.tif": b"II*\x00" + b"\xff" * 64,
    "bad.docx": make_office_file("word/document.xml"),
    "cut.docx": truncate(make_office_file("word/document.xml")),
    "bad.xlsx": make_office_file("xl/workbook.xml"),
    "empty.xlsx": make_office_file("xl/other.xml"),
    "bad.pptx": make_office_file("ppt/presentation.xml"),
    "bad.zip": make_office_file("a.txt"),
    "bad.html": b"<html><body" + b"<" * 500,
    "nothing.html": b"<html><head></head></html>",
    "bad.csv": b'"' * 501,
    "bad.json": b"{" * 200,
    "bad.eml": b"From: \x00\xff",
    "bytes.bin": bytes(range(256)) * 4,
    "blank.txt": b" \n\t\n",
    "blank.md": b"#\n\n#",
}


async def test_responses_contain_no_server_paths(world: ApiWorld) -> None:
    receipts = [await world.ingest(body, name) for name, body in BROKEN_FILES.items()]
    states = [(await world.wait_until_final(receipt))["state"] for receipt in receipts]
    assert states.count("failed") > len(BROKEN_FILES) // 2, dict(
        zip(BROKEN_FILES, states, strict=True)
    )
    pages = [
        "/v1/dead-letters?limit=100",
        "/v1/documents?limit=100",
        "/v1/events?after=begin&limit=500",
        "/v1/sources",
        "/v1/health",
        "/readyz",
        "/health",
    ]
    pages += [f"/v1/ingest/status/{receipt['ingestion_job_id']}" for receipt in receipts]
    pages += [f"/v1/documents/{receipt['document_id']}" for receipt in receipts]
    answers = [(page, (await world.http.get(page)).text) for page in pages]
    for blocked in ("file", "markdown"):
        answers += [
            (
                blocked,
                (await world.http.get(f"/v1/documents/{receipt['document_id']}/{blocked}")).text,
            )
            for receipt in receipts[:3]
        ]
    for page, text in answers:
        assert not (found := [path for path in list_server_paths(world) if path in text]), (
            page,
            found,
            text[:3000],
        )


async def test_unreadable_blob_error_contains_no_path(world: ApiWorld) -> None:
    blobs = world.settings.data_dir / "blobs"
    (blobs / "uploads" / "default" / "folder" / "inside").mkdir(parents=True)
    response = await world.http.post("/v1/ingest", json={"storage_key": "uploads/default/folder"})
    (blobs / "uploads" / "default" / "file").write_text("x")
    beneath = await world.http.post(
        "/v1/ingest", json={"storage_key": "uploads/default/file/beneath"}
    )
    for text in (response.text, beneath.text):
        assert not [path for path in list_server_paths(world) if path in text], text


def list_server_paths(world: ApiWorld) -> set[str]:
    folders: set[str | Path] = {
        world.settings.data_dir,
        tempfile.gettempdir(),
        sysconfig.get_paths()["purelib"],
        Path(__file__).parents[2],
    }
    return {str(Path(folder).resolve()) for folder in folders}
