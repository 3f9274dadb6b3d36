"""Mail keeps its header, its text once, what it quotes, and its attachments."""

from __future__ import annotations

import base64
import io
import time
import zipfile
from datetime import date
from email.message import EmailMessage
from pathlib import Path

import pytest

from engines.parse import embedded, formats, mail, sandbox_jobs
from engines.parse.embedded import limit_embedded_files, read_embedded
from engines.parsed_blocks import ParsedPart
from schemas.errors import LimitExceeded, UnreadableDocument
from tests.unit.engines_parse import sample_files
from tests.unit.engines_parse.sample_files import Section, write_file

HEADER = "From: Ana <ana@example.org>\nTo: rui@example.org\nSubject: Crane 5512\n"


def read(data: bytes) -> ParsedPart:
    with limit_embedded_files():
        return mail.read(data)


def read_text(data: bytes | str) -> str:
    data = data if isinstance(data, bytes) else data.encode()
    return "\n".join(block.text for block in read(data).blocks)


@pytest.mark.parametrize("name", ["a.eml", None, "a.html", "a.txt"])
def test_mail_with_a_page_is_mail(tmp_path: Path, name: str | None) -> None:
    source = HEADER + "MIME-Version: 1.0\nContent-Type: text/html\n\n<html><body>Hi</body></html>"
    path = write_file(tmp_path, "file", source.encode())
    assert formats.detect_media_type(path, name, None).media_type == formats.MAIL


@pytest.mark.parametrize(
    "source",
    ["# Notes\nDate: today\nTo: all\nSubject: x\n", "Date: 1 May\n\nTo: do\n", "<html>From: a\n"],
)
def test_text_that_mentions_header_fields_is_not_mail(tmp_path: Path, source: str) -> None:
    path = write_file(tmp_path, "file", source.encode())
    assert formats.detect_media_type(path, None, None).media_type != formats.MAIL


def test_header_is_title_date_and_lines() -> None:
    part = read(
        b"From: =?iso-8859-1?Q?Jo=E3o?= <j@example.org>\nTo: a@example.org,\n b@example.org\n"
        b"Subject: =?utf-8?B?UHJlw6dv?= da obra\nDate: Tue, 3 Mar 2026 09:00:00 +0000\n\nText.\n"
    )
    assert (part.title, part.document_date) == ("Preço da obra", date(2026, 3, 3))
    assert part.blocks[1].text.split("\n") == [
        "- From: João <j@example.org>",
        "- To: a@example.org, b@example.org",
        "- Date: Tue, 3 Mar 2026 09:00:00 +0000",
    ]


@pytest.mark.parametrize("charset", ["utf-8", "windows-1252"])
def test_header_of_bytes_without_declared_encoding_is_decoded(charset: str) -> None:
    source = (
        "From: Sá <s@example.org>\nSubject: Preço da grua\nContent-Type: multipart/mixed;"
        ' boundary=b\n\n--b\nContent-Disposition: attachment; filename="preço.txt"\n\nIt costs 9.'
        "\n--b--"
    )
    text = read_text(source.encode(charset))
    assert "Preço da grua" in text and "From: Sá <" in text and "Attachment: preço.txt" in text


@pytest.mark.parametrize(
    ("fields", "body", "expected"),
    [
        ("text/plain; charset=iso-8859-1\nContent-Transfer-Encoding: quoted-printable",
         b"1=\n40 =A0x v=E1lvula", "140 \xa0x válvula"),
        ("text/plain; charset=utf-8\nContent-Transfer-Encoding: base64",
         base64.b64encode("40 €".encode()), "40 €"),
        ("text/plain; charset=koi8-r", "Цена".encode("koi8-r"), "Цена"),
        ("text/plain; charset=gb2312", "租金".encode("gb18030"), "租金"),
        ("text/html; charset=utf-8\nContent-Transfer-Encoding: quoted-printable",
         b"<html><p>two d=\nays =E2=82=AC</html>", "two days €"),
        ("text/plain; charset=nonsense", b"plain words", "plain words"),
        ("text/plain; format=flowed", b"after each \n400 hours\n> old \n> line\n-- \nAna",
         "after each 400 hours\n> old line\n--\nAna"),
    ],
)  # fmt: skip
def test_body_is_decoded(fields: str, body: bytes, expected: str) -> None:
    text = read_text(f"{HEADER}Content-Type: {fields}\n\n".encode() + body)
    assert text.partition("rui@example.org\n")[2] == expected


def test_best_alternative_is_read_once() -> None:
    message = EmailMessage()
    message["Subject"] = "x"
    message.set_content("The price is 135 euros.")
    message.add_alternative("<p>The price is <b>135</b> euros.</p>", subtype="html")
    assert read_text(bytes(message)).count("135") == 1
    message = EmailMessage()
    message.set_content("See the table in a browser.")
    message.add_alternative("<table><tr><th>a<th>b<tr><td>1<td>2</table>", subtype="html")
    assert "| 1 | 2 |" in read_text(bytes(message))


@pytest.mark.parametrize(
    "older",
    [
        "> The price was 120.",
        "On Mon, 2 Mar 2026 at 10:00, Rui <r@example.org> wrote:\nThe price was 120.",
        "On Mon, 2 Mar 2026 at 10:00, Rui\n<r@example.org> wrote:\n\n> The price was 120.",
        "-----Original Message-----\nFrom: Rui\nSent: Monday\n\nThe price was 120.",
        "Em seg., 2 de mar. de 2026, Rui escreveu:\nThe price was 120.",
        "El lun, 2 mar 2026, Rui escribió:\nThe price was 120.",
        "Am Mo., 2. März 2026 schrieb Rui:\nThe price was 120.",
        "Le lun. 2 mars 2026, Rui a écrit :\nThe price was 120.",
        "De: Rui\nEnviado: segunda-feira\nPara: Ana\nAssunto: obra\n\nThe price was 120.",
        "Von: Rui\nGesendet: Montag\nAn: Ana\n\nThe price was 120.",
    ],
)
def test_older_mail_is_quoted(older: str) -> None:
    text = read_text(f"{HEADER}\nThe price is 135.\n\n{older}\n")
    assert "\nThe price is 135." in text
    assert "> The price was 120." in text


def test_answer_below_a_quoted_line_is_not_quoted() -> None:
    text = read_text(f"{HEADER}\nOn Monday, Rui wrote:\n> How much?\nIt is 135.\n")
    assert text.endswith("On Monday, Rui wrote:\n> How much?\nIt is 135.")


@pytest.mark.parametrize(
    "older",
    [
        "<blockquote class=gmail_quote><h1>Old</h1><p>It was 120.</p></blockquote>",
        "<div>On Mon, 2 Mar 2026, Rui wrote:</div><p>It was 120.</p>",
        "<div id=divRplyFwdMsg><b>From:</b> Rui<br><b>Sent:</b> Monday</div><p>It was 120.</p>",
    ],
)
def test_older_mail_in_html_is_quoted(older: str) -> None:
    part = read(f"{HEADER}Content-Type: text/html\n\n<p>It is 135.</p>{older}".encode())
    assert [block.text for block in part.blocks if "135" in block.text] == ["It is 135."]
    assert [block.text for block in part.blocks if "120" in block.text] == ["> It was 120."]
    assert [block.kind for block in part.blocks].count("heading") == 1


def make_mail_with(name: str, data: bytes, kind: str = "application/octet-stream") -> bytes:
    message = EmailMessage()
    message["Subject"] = "Stock"
    message.set_content("See the file.")
    main, sub = kind.split("/")
    message.add_attachment(data, maintype=main, subtype=sub, filename=name)
    return bytes(message)


SECTIONS = [Section("Pumps", ["The pump is oiled every week."])]


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("stock.csv", b"code,qty\nVX-1,44\nVX-2,45\n", "VX-1 | 44"),
        ("preço.txt", "São 44 peças".encode(), "São 44 peças"),
        ("a.html", b"<html><p>10<sup>6</sup></html>", "10⁶"),
        ("a.json", b'{"qty": 44}', "qty: 44"),
        ("a.pdf", sample_files.RENDERERS["pdf"](SECTIONS), "oiled every week"),
        ("a.docx", sample_files.RENDERERS["docx"](SECTIONS), "oiled every week"),
    ],
)
def test_attachment_is_a_section_with_its_name(name: str, data: bytes, expected: str) -> None:
    text = read_text(make_mail_with(name, data))
    assert f"Attachment: {name}" in text
    assert expected in text.partition("Attachment")[2]


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("a.bin", bytes(range(256)) * 9, "not supported"),
        ("a.pdf", b"%PDF-1.7 broken", ""),
        ("empty.txt", b"", "empty"),
        ("pic.png", sample_files.render_text_image("hello", "png"), "images"),
        ("a.rtf", b"{\\rtf1 x}", "RTF"),
    ],
)
def test_unreadable_attachment_is_a_warning(name: str, data: bytes, reason: str) -> None:
    part = read(make_mail_with(name, data))
    (notice,) = part.notices
    assert notice.code == "ATTACHMENT_NOT_INDEXED"
    assert name in notice.detail and reason in notice.detail
    assert "See the file." in part.blocks[-1].text


def test_forwarded_mail_is_a_section_and_nesting_is_limited() -> None:
    message = make_mail_with("deep.txt", b"deepest words")
    for level in range(4):
        outer = EmailMessage()
        outer["Subject"] = f"Level {level}"
        outer.set_content(f"text of level {level}")
        outer.add_attachment(mail.message_from_bytes(message, policy=mail.policy.default))
        message = bytes(outer)
    part = read(message)
    text = "\n".join(block.text for block in part.blocks)
    assert "Forwarded message: Level 2.eml" in text and "text of level 1" in text
    assert "deepest words" not in text
    assert ["nested" in notice.detail for notice in part.notices] == [True]


def test_calendar_is_lines() -> None:
    source = (
        "BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\nSUMMARY:Budget\\, again\r\n"
        "DTSTART;TZID=Europe/Lisbon:20260310T140000\r\nDTEND:20260310T150000Z\r\n"
        "LOCATION:Room \r\n 12\r\nBEGIN:VALARM\r\nDESCRIPTION:no\r\nEND:VALARM\r\n"
        "ORGANIZER;CN=Ana:mailto:ana@example.org\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"
    )
    text = read_text(f"{HEADER}Content-Type: text/calendar; charset=utf-8\n\n{source}")
    assert text.splitlines()[-5:] == [
        "- Event: Budget, again",
        "- Start: 2026-03-10 14:00 Europe/Lisbon",
        "- End: 2026-03-10 15:00 UTC",
        "- Place: Room 12",
        "- Organizer: Ana <ana@example.org>",
    ]


@pytest.mark.parametrize(
    "source",
    [
        "To: " + "a@b.c, " * 30_000 + "\n\nx",
        "Subject: " + "=?utf-8?q?a?= " * 15_000 + "\n\nx",
        "Subject: " + "=?" * 60_000 + "\n\nx",
        "From: a\n" + "X: y\n" * 40_000 + "\n\nx",
        HEADER + "\n" + "> " * 100_000 + "x",
        HEADER + "\n" + "On \n" * 50_000,
        HEADER + "\n" + "On Monday at ten Rui and Ana and so on \n" * 20_000,
        HEADER + "\n" + "From: a\n" * 50_000,
        HEADER + "Content-Type: text/plain; format=flowed\n\n" + "> a \n" * 50_000,
        HEADER + "Content-Type: multipart/mixed; boundary=x\n\n" + "--x\n\na\n" * 10_000,
        HEADER + "Content-Type: text/calendar\n\nBEGIN:VEVENT\n" + "A;" * 50_000,
        HEADER + "Content-Type: text/plain" + "; a=b" * 20_000 + "\n\nx",
    ],
)
def test_hostile_mail_takes_little_time(source: str) -> None:
    start = time.process_time()
    read(source.encode())
    assert time.process_time() - start < 5


# Files inside archives become sections within limits, or warnings.


def pack(files: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name, data in files.items():
            bundle.writestr(name, data)
    return stream.getvalue()


def read_zip(folder: Path, data: bytes) -> ParsedPart:
    path = write_file(folder, "file", data)
    plan = sandbox_jobs.PLAN_ADAPTER.validate_json(
        sandbox_jobs.plan_document(str(path), "a.zip", None, 100)
    )
    assert plan.media_type == formats.ZIP
    return ParsedPart.decode(sandbox_jobs.read_part(str(path), plan.media_type, "all", 10**6))


def test_each_file_of_an_archive_is_a_section(tmp_path: Path) -> None:
    data = pack(
        {
            "notes/a.md": b"# Pumps\n\nOil weekly.",
            "b.csv": b"code,qty\nVX-1,44\nVX-2,3\n",
            "c.eml": b"From: a@example.org\nSubject: Offer\n\n118 euros.",
            "__MACOSX/x": b"x",
            "folder/": b"",
            "d.bin": bytes(range(256)) * 5,
        }
    )
    part = read_zip(tmp_path, data)
    headings = [block.text for block in part.blocks if block.level == 2]
    assert headings == ["File: notes/a.md", "File: b.csv", "File: c.eml"]
    assert any("118 euros" in block.text for block in part.blocks)
    assert ["d.bin" in notice.detail for notice in part.notices] == [True]


def test_archive_in_an_archive_is_read_to_a_limited_depth(tmp_path: Path) -> None:
    data = pack({"deepest.txt": b"deepest words"})
    for level in range(4):
        data = pack({f"level{level}.zip": data, f"text{level}.txt": f"text {level}".encode()})
    part = read_zip(tmp_path, data)
    text = "\n".join(block.text for block in part.blocks)
    assert "text 3" in text and "text 1" in text and "deepest words" not in text
    assert any("nested" in notice.detail for notice in part.notices)


def test_number_and_size_of_files_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "MAX_FILES", 2)
    monkeypatch.setattr(embedded, "MAX_TOTAL_BYTES", 100)
    with limit_embedded_files():
        assert read_embedded("a.txt", b"a" * 60).blocks
        assert "exceed" in read_embedded("b.txt", b"b" * 60).notices[0].detail
        assert read_embedded("c.txt", b"c").blocks
        assert "more than 2 files" in read_embedded("d.txt", b"d").notices[0].detail


@pytest.mark.parametrize("name", ["mimetype", "[Content_Types].xml", "META-INF/MANIFEST.MF"])
def test_container_of_another_program_is_still_refused(tmp_path: Path, name: str) -> None:
    path = write_file(tmp_path, "file", pack({name: b"x", "content.xml": b"<x/>"}))
    with pytest.raises(UnreadableDocument) as caught:
        formats.detect_media_type(path, "a.zip", None)
    assert caught.value.code == "UNSUPPORTED_TYPE"


def test_bomb_in_an_archive_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LimitExceeded):
        read_zip(tmp_path, pack({f"{i}.txt": bytes(14 * 2**20) for i in range(9)}))


def test_bomb_in_an_attachment_is_a_warning() -> None:
    bomb = pack({"word/document.xml": bytes(200 * 2**20), "[Content_Types].xml": b"x"})
    with limit_embedded_files():
        (notice,) = read_embedded("a.docx", bomb).notices
    assert notice.code == "ATTACHMENT_NOT_INDEXED" and "unpacks" in notice.detail


def test_name_of_a_file_stays_on_one_line() -> None:
    part = read_embedded("a\n# Heading\x00 .txt", b"words")
    assert "\n" not in part.blocks[0].text
