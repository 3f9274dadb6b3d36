"""Files that are broken in every way: what is said of them names no place on the server's disk."""

from __future__ import annotations

import io
import sysconfig
import tempfile
import zipfile
from pathlib import Path

from PIL import Image

from tests.journey.bad_files import empty_pdf, encrypted_pdf, pdf
from tests.journey.conftest import World


def image(kind: str) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (64, 64), "white").save(buffer, kind)
    return buffer.getvalue()


def office(part: str, content: bytes = b"<not-xml") -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
        archive.writestr(part, content)
    return buffer.getvalue()


def cut(body: bytes) -> bytes:
    return body[: len(body) // 2]


BROKEN = {
    "cut.pdf": cut(pdf(3)),
    "head.pdf": b"%PDF-1.7\n%%EOF",
    "locked.pdf": encrypted_pdf(),
    "empty.pdf": empty_pdf(),
    **{f"cut.{kind.lower()}": cut(image(kind)) for kind in ("PNG", "JPEG", "TIFF", "WEBP", "GIF", "BMP")},
    "head.png": b"\x89PNG\r\n\x1a\n" + bytes(64),
    "head.jpg": b"\xff\xd8\xff\xe0" + bytes(64),
    "head.tif": b"II*\x00" + b"\xff" * 64,
    "bad.docx": office("word/document.xml"),
    "cut.docx": cut(office("word/document.xml")),
    "bad.xlsx": office("xl/workbook.xml"),
    "empty.xlsx": office("xl/other.xml"),
    "bad.pptx": office("ppt/presentation.xml"),
    "bad.zip": office("a.txt"),
    "bad.html": b"<html><body" + b"<" * 500,
    "nothing.html": b"<html><head></head></html>",
    "bad.csv": b'"' * 501,
    "bad.json": b"{" * 200,
    "bad.eml": b"From: \x00\xff",
    "bytes.bin": bytes(range(256)) * 4,
    "blank.txt": b" \n\t\n",
    "blank.md": b"#\n\n#",
}


async def test_no_error_names_a_path_of_the_server(world: World) -> None:
    receipts = [await world.ingest(body, name) for name, body in BROKEN.items()]
    states = [(await world.ended(receipt))["state"] for receipt in receipts]
    assert states.count("failed") > len(BROKEN) // 2, dict(zip(BROKEN, states, strict=True))
    pages = ["/v1/dead-letters?limit=100", "/v1/documents?limit=100", "/v1/events?after=begin&limit=500", "/v1/sources", "/v1/health", "/readyz", "/health"]
    pages += [f"/v1/ingest/status/{receipt['ingestion_job_id']}" for receipt in receipts]
    pages += [f"/v1/documents/{receipt['document_id']}" for receipt in receipts]
    told = [(page, (await world.http.get(page)).text) for page in pages]
    for blocked in ("file", "markdown"):
        told += [(blocked, (await world.http.get(f"/v1/documents/{receipt['document_id']}/{blocked}")).text) for receipt in receipts[:3]]
    for page, text in told:
        assert not (found := [path for path in places(world) if path in text]), (page, found, text[:3000])


async def test_unreadable_blob_names_no_path(world: World) -> None:
    blobs = world.settings.data_dir / "blobs"
    (blobs / "uploads" / "default" / "folder" / "inside").mkdir(parents=True)
    response = await world.http.post("/v1/ingest", json={"storage_key": "uploads/default/folder"})
    (blobs / "uploads" / "default" / "file").write_text("x")
    beneath = await world.http.post("/v1/ingest", json={"storage_key": "uploads/default/file/beneath"})
    for text in (response.text, beneath.text):
        assert not [path for path in places(world) if path in text], text


def places(world: World) -> set[str]:
    folders: set[str | Path] = {world.settings.data_dir, tempfile.gettempdir(), sysconfig.get_paths()["purelib"], Path(__file__).parents[2]}
    return {str(Path(folder).resolve()) for folder in folders}
