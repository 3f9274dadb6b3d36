"""What a file is, decided by its bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from engines.parse import archive, detect
from schemas.errors import LimitExceeded, UnreadableDocument
from tests.unit.engines_parse import writing
from tests.unit.engines_parse.writing import Part, written

PARTS = [Part("Pumps", ["The pump is oiled every week."], [["part", "price"], ["seal", "12"]])]


def media_type(folder: Path, name: str, data: bytes, claimed: str | None = None) -> str:
    return detect.detect(written(folder, "file", data), name, claimed).media_type


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("pdf", detect.PDF),
        ("docx", detect.DOCX),
        ("xlsx", detect.XLSX),
        ("html", detect.HTML),
        ("md", detect.MARKDOWN),
        ("csv", detect.CSV),
        ("txt", detect.PLAIN),
    ],
)
def test_a_file_is_known_by_its_bytes_whatever_it_is_named(tmp_path: Path, kind: str, expected: str) -> None:
    data = writing.WRITERS[kind](PARTS)
    assert media_type(tmp_path, f"a.{kind}", data) == expected
    if kind in ("pdf", "docx", "xlsx", "html"):
        assert media_type(tmp_path, "a.csv", data) == expected


@pytest.mark.parametrize("suffix", ["png", "jpg", "tif", "webp", "gif", "bmp"])
def test_pictures_are_pictures(tmp_path: Path, suffix: str) -> None:
    assert media_type(tmp_path, "x.pdf", writing.picture_of_text("hello", suffix)) in detect.IMAGES


def test_a_wrong_extension_is_noticed_and_no_error(tmp_path: Path) -> None:
    found = detect.detect(written(tmp_path, "x", writing.pdf(PARTS)), "report.docx", None)
    assert found.mislabelled
    assert not detect.detect(written(tmp_path, "x", writing.pdf(PARTS)), "report.pdf", None).mislabelled


def test_a_text_without_a_name_is_told_by_its_look(tmp_path: Path) -> None:
    assert media_type(tmp_path, "", b"a;b;c\n1;2;3\n4;5;6\n7;8;9\n") == detect.CSV
    assert media_type(tmp_path, "", b"# One\n\n- two\n- three\n\n[four](five)\n") == detect.MARKDOWN
    assert media_type(tmp_path, "", b"Just a note, nothing more.\nIt has two lines.\n") == detect.PLAIN
    assert media_type(tmp_path, "", b"From: a@example.org\nTo: b@example.org\nSubject: hi\n\nhello\n") == detect.MAIL


def test_the_name_decides_between_kinds_of_text(tmp_path: Path) -> None:
    data = b"a,b\n1,2\n3,4\n"
    assert media_type(tmp_path, "a.txt", data) == detect.PLAIN
    assert media_type(tmp_path, "a", data, "text/csv; charset=utf-8") == detect.CSV


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "EMPTY_DOCUMENT"),
        (b"\x7fELF\x02\x01\x01" + bytes(200), "UNSUPPORTED_TYPE"),
        (b"{\\rtf1 hello}", "UNSUPPORTED_TYPE"),
        (b"PK\x05\x06" + bytes(18), "UNSUPPORTED_TYPE"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(500) + "WordDocument".encode("utf-16-le"), "UNSUPPORTED_TYPE"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(500) + "EncryptedPackage".encode("utf-16-le"), "ENCRYPTED_DOCUMENT"),
        (writing.word(PARTS)[:3000], "CORRUPT_DOCUMENT"),
    ],
)
def test_what_cannot_be_read_is_named_with_a_way_out(tmp_path: Path, data: bytes, code: str) -> None:
    with pytest.raises(UnreadableDocument) as caught:
        media_type(tmp_path, "x", data)
    assert caught.value.code == code
    assert caught.value.remedy


@pytest.mark.parametrize("data", [writing.bomb(), writing.lying_bomb(), writing.crowded_archive(archive.MAX_ENTRIES)])
def test_an_archive_that_unpacks_to_too_much_is_refused(tmp_path: Path, data: bytes) -> None:
    path = written(tmp_path, "x", data)
    with pytest.raises(LimitExceeded) as caught:
        archive.measure(path)
    assert caught.value.code == "ARCHIVE_BOMB"
