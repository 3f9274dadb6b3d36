"""Files inside archives become sections within limits, or warnings."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest

from engines.parse import embedded, formats, sandbox_jobs
from engines.parse.embedded import limit_embedded_files, read_embedded
from engines.parsed_blocks import ParsedPart
from schemas.errors import LimitExceeded, UnreadableDocument
from tests.unit.engines_parse.sample_files import write_file


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
