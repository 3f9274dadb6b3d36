"""File formats are detected from the bytes.

The example of 'Add a file format', copied from the page and run in a sandbox child.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path

import pytest

from engines.parse import archive, formats
from schemas.errors import LimitExceeded, UnreadableDocument
from tests.unit.engines_parse import sample_files
from tests.unit.engines_parse.sample_files import Section, write_file

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/how-to/add-a-format.md").read_text(encoding="utf-8")
PARSE_FILE = """
import asyncio, json, sys
from contextlib import aclosing
from pathlib import Path
from engines.ocr.rapidocr import RapidOcr
from engines.parse import LocalParser
from schemas.ports.engines import LocalFile

async def main(path):
    async with aclosing(LocalParser(RapidOcr())) as parser:
        file = LocalFile(path, path.name, None, path.stat().st_size)
        plan = await parser.plan(file)
        parts = [await parser.parse(file, plan, part) for part in plan.parts]
        transcript = parser.assemble(file, plan, parts)
        spans = [[block.span.start_s, block.span.end_s] for block in transcript.blocks]
        print(plan.media_type, transcript.markdown, json.dumps(spans), sep="\\n")

asyncio.run(main(Path(sys.argv[1])))
"""


def find_code(language: str) -> str:
    (code,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return str(code)


def run_parser(program_folder: Path, document: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PARSE_FILE, str(document)],
        cwd=program_folder,
        env={"PYTHONPATH": str(program_folder)},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture
def program_folder(tmp_path: Path) -> Path:
    for package in ("engines", "schemas"):
        shutil.copytree(ROOT / package, tmp_path / package)
    return tmp_path


def test_format_of_howto_takes_one_file_and_one_line(program_folder: Path) -> None:
    document = program_folder / "night.watchlog"
    document.write_text(find_code("watchlog"))
    assert "text/plain" in run_parser(program_folder, document).stdout

    (program_folder / "engines/parse/watch_log.py").write_text(find_code("python"))
    before, added, _ = find_code("diff").splitlines(keepends=True)
    formats = program_folder / "engines/parse/formats.py"
    source = formats.read_text()
    assert added.startswith("+")
    assert source.count(before[1:]) == 1, (
        f"{formats.name} lacks the line {before[1:]!r} of the page"
    )
    formats.write_text(source.replace(before[1:], before[1:] + added[1:]))

    done = run_parser(program_folder, document)
    printed = "application/x-watch-log\n" + find_code("markdown") + find_code("json")
    assert done.stdout == printed, done.stderr


SECTIONS = [
    Section("Pumps", ["The pump is oiled every week."], [["part", "price"], ["seal", "12"]])
]


def detect_media_type(folder: Path, name: str, data: bytes, claimed: str | None = None) -> str:
    return formats.detect_media_type(write_file(folder, "file", data), name, claimed).media_type


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("pdf", "application/pdf"),
        ("docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
        ("xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
        ("html", formats.HTML),
        ("md", formats.MARKDOWN),
        ("csv", formats.CSV),
        ("txt", formats.PLAIN),
    ],
)
def test_media_type_is_detected_from_bytes_not_name(
    tmp_path: Path, kind: str, expected: str
) -> None:
    data = sample_files.RENDERERS[kind](SECTIONS)
    assert detect_media_type(tmp_path, f"a.{kind}", data) == expected
    if kind in ("pdf", "docx", "xlsx", "html"):
        assert detect_media_type(tmp_path, "a.csv", data) == expected


@pytest.mark.parametrize(
    ("suffix", "expected"),
    [
        ("png", "image/png"),
        ("jpg", "image/jpeg"),
        ("tif", "image/tiff"),
        ("webp", "image/webp"),
        ("gif", "image/gif"),
        ("bmp", "image/bmp"),
    ],
)
def test_images_are_detected_despite_wrong_extension(
    tmp_path: Path, suffix: str, expected: str
) -> None:
    data = sample_files.render_text_image("hello", suffix)
    assert detect_media_type(tmp_path, "x.pdf", data) == expected


def test_every_format_names_an_existing_reader() -> None:
    for file_format in formats.FORMATS:
        if file_format.is_paged:
            reader = file_format.load_paged_reader()
            assert callable(reader.inspect_pages) and callable(reader.render_page)
        else:
            module, function = file_format.reader.split(".")
            assert callable(getattr(import_module(f"engines.parse.{module}"), function))


@pytest.mark.parametrize(("name", "is_mislabeled"), [("a.docx", True), ("a.pdf", False)])
def test_wrong_extension_is_flagged_but_accepted(
    tmp_path: Path, name: str, is_mislabeled: bool
) -> None:
    path = write_file(tmp_path, "x", sample_files.render_pdf(SECTIONS))
    assert formats.detect_media_type(path, name, None).is_mislabeled == is_mislabeled


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"a;b;c\n1;2;3\n4;5;6\n7;8;9\n", formats.CSV),
        (b"# One\n\n- two\n- three\n\n[four](five)\n", formats.MARKDOWN),
        (b"Just a note, nothing more.\nIt has two lines.\n", formats.PLAIN),
        (b"From: a@example.org\nTo: b@example.org\nSubject: hi\n\nhello\n", formats.MAIL),
    ],
)
def test_text_kind_without_name_is_detected_from_content(
    tmp_path: Path, data: bytes, expected: str
) -> None:
    assert detect_media_type(tmp_path, "", data) == expected


def test_name_and_claimed_type_decide_between_text_kinds(tmp_path: Path) -> None:
    data = b"a,b\n1,2\n3,4\n"
    assert detect_media_type(tmp_path, "a.txt", data) == formats.PLAIN
    assert detect_media_type(tmp_path, "a", data, "text/csv; charset=utf-8") == formats.CSV


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "EMPTY_DOCUMENT"),
        (b"\x7fELF\x02\x01\x01" + bytes(200), "UNSUPPORTED_TYPE"),
        (b"{\\rtf1 hello}", "UNSUPPORTED_TYPE"),
        (b"PK\x05\x06" + bytes(18), "UNSUPPORTED_TYPE"),
        (
            b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(500) + "WordDocument".encode("utf-16-le"),
            "UNSUPPORTED_TYPE",
        ),
        (
            b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
            + bytes(500)
            + "EncryptedPackage".encode("utf-16-le"),
            "ENCRYPTED_DOCUMENT",
        ),
        (sample_files.render_docx(SECTIONS)[:3000], "CORRUPT_DOCUMENT"),
    ],
)
def test_unreadable_file_is_rejected_with_code_and_remedy(
    tmp_path: Path, data: bytes, code: str
) -> None:
    with pytest.raises(UnreadableDocument) as caught:
        detect_media_type(tmp_path, "x", data)
    assert caught.value.code == code
    assert caught.value.remedy


@pytest.mark.parametrize(
    "make_archive",
    [
        sample_files.make_archive_bomb,
        sample_files.make_understated_archive_bomb,
        partial(sample_files.make_archive_with_entries, archive.MAX_ENTRIES),
    ],
    ids=["stated size", "understated size", "entries"],
)
def test_archive_bomb_is_rejected(tmp_path: Path, make_archive: Callable[[], bytes]) -> None:
    path = write_file(tmp_path, "x", make_archive())
    with pytest.raises(LimitExceeded) as caught:
        archive.check_unpacked_size(path)
    assert caught.value.code == "ARCHIVE_BOMB"
