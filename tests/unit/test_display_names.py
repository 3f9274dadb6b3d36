"""Names that look like others: direction controls reorder what a reader sees."""

from __future__ import annotations

import io
import zipfile
from email.message import EmailMessage
from pathlib import Path

import httpx2
import pytest

from api.app import create_app
from engines.parse import html, mail
from engines.parse.embedded import read_archive
from schemas.values import Amendment, DocumentFields, DocumentSummary, Transcript
from tests.unit.api_fakes import FakeIntake, make_services

CONTROLS = [*range(0x202A, 0x202F), *range(0x2066, 0x206A)]


NAMES = [
    *(f"invoice{chr(control)}fdp.exe" for control in CONTROLS),
    f"{chr(0x2067)}report{chr(0x2069)} {chr(0x202E)}fdp{chr(0x202C)}.exe",
]


def holds_control(text: str) -> bool:
    return any(ord(character) in CONTROLS for character in text)


@pytest.mark.parametrize("name", NAMES)
def test_names_are_stored_without_direction_controls(name: str) -> None:
    fields = DocumentFields(filename=name, title=name)
    summary = DocumentSummary(filename=name, title=name)
    amendment = Amendment(title=name)
    transcript = Transcript(markdown="", blocks=[], title=name)
    for shown in (
        fields.filename,
        fields.title,
        summary.filename,
        summary.title,
        amendment.title,
        transcript.title,
    ):
        assert shown is not None and not holds_control(shown)
        assert shown.endswith("fdp.exe")


def test_names_in_right_to_left_scripts_stay() -> None:
    name = "חשבונית\u200f 12.pdf – فاتورة\u200e (2).pdf"
    assert DocumentFields(filename=name).filename == name


@pytest.mark.parametrize("name", ["", "   ", "\u202e\t\n"])
def test_blank_titles_are_stored_empty(name: str) -> None:
    assert DocumentFields(title=name).title == "" == Amendment(title=name).title


async def test_uploaded_file_cannot_hide_its_extension() -> None:
    intake = FakeIntake()
    transport = httpx2.ASGITransport(create_app(make_services(ingest=intake)))
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        response = await client.post(
            "/v1/ingest",
            files={"file": ("invoice\u202efdp.exe", b"# Hi", "text/markdown")},
            data={"title": "Invoice\u2067 3"},
        )
    assert response.status_code == 202, response.text
    ((request, _, _),) = intake.accepted
    assert (request.filename, request.title) == ("invoicefdp.exe", "Invoice 3")


def test_files_inside_documents_cannot_hide_their_extensions() -> None:
    message = EmailMessage()
    message["Subject"] = "Invoice"
    message.set_content("See the file.")
    message.add_attachment(b"Total 5", "text", "plain", filename="invoice\u202etxt.exe")
    message.add_attachment(b"MZ\x90\x00", "application", "x-dos", filename="bill\u202efdp.exe")
    read = mail.read(message.as_bytes())
    shown = [block.text for block in read.blocks] + [notice.detail for notice in read.notices]
    assert any("invoicetxt.exe" in text for text in shown)
    assert any("billfdp.exe" in text for text in shown)
    assert not any(map(holds_control, shown))


def test_members_of_archives_cannot_hide_their_extensions(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as bundle:
        bundle.writestr("notes\u202etxt.md", "Total 5")
        bundle.writestr("bill\u202efdp.exe", b"MZ\x90\x00\x03")
    path = tmp_path / "x.zip"
    path.write_bytes(buffer.getvalue())
    read = read_archive(path)
    shown = [block.text for block in read.blocks] + [notice.detail for notice in read.notices]
    assert any("notestxt.md" in text for text in shown)
    assert not any(map(holds_control, shown))


def test_title_found_in_a_page_has_no_direction_controls() -> None:
    read = html.read("<title>Invoice \u202efdp</title><p>Text</p>".encode())
    transcript = Transcript(markdown="Text", blocks=[], title=read.title)
    assert transcript.title == "Invoice fdp"
