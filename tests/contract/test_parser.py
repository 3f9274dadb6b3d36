"""Contract of the port `Parser`, run against the local parser with a fake OCR engine."""

from __future__ import annotations

import io
import time
import zipfile
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path

import pytest
import pytest_asyncio

from engines.parse import LocalParser
from schemas.errors import LimitExceeded, PermanentError
from schemas.ports.engines import LocalFile, ParsePlan
from schemas.values import Transcript
from tests.fakes.ocr import FakeOcr
from tests.unit.engines_parse import sample_files
from tests.unit.engines_parse.sample_files import Section

pytestmark = pytest.mark.asyncio(loop_scope="module")
WORDS = "These words are only on the picture."
PARTS = [
    Section(
        "Maintenance",
        ["The pump is oiled every week. It must not run dry."],
        [["part", "price"], ["seal", "12"], ["valve", "30"]],
    ),
    Section("Safety", ["Wear gloves at all times."]),
]
MAX_PAGES = 40


@pytest.fixture(scope="module")
def ocr() -> FakeOcr:
    return FakeOcr(WORDS)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def parser(ocr: FakeOcr) -> AsyncIterator[LocalParser]:
    async with aclosing(LocalParser(ocr, max_pages=MAX_PAGES, deadline_s=60)) as engine:
        yield engine


def make_file(folder: Path, name: str, data: bytes, media_type: str | None = None) -> LocalFile:
    path = sample_files.write_file(folder, "bytes", data)
    return LocalFile(path, name, media_type, len(data))


async def parse_file(parser: LocalParser, file: LocalFile) -> tuple[ParsePlan, Transcript]:
    plan = await parser.plan(file)
    return plan, parser.assemble(
        file, plan, [await parser.parse(file, plan, part) for part in plan.parts]
    )


@pytest.mark.parametrize("kind", sample_files.RENDERERS)
async def test_blocks_are_ordered_with_exact_spans(
    parser: LocalParser, tmp_path: Path, kind: str
) -> None:
    _, found = await parse_file(
        parser, make_file(tmp_path, f"a.{kind}", sample_files.RENDERERS[kind](PARTS))
    )
    assert found.blocks
    end = 0
    for block in found.blocks:
        assert end <= block.span.char_start < block.span.char_end <= len(found.markdown)
        assert found.markdown[block.span.char_start : block.span.char_end].strip()
        end = block.span.char_end
    tables = [block for block in found.blocks if block.kind == "table"]
    assert bool(tables) == (kind != "txt")
    assert bool(tables) == ("| seal | 12 |\n" in found.markdown)
    for table in tables:
        assert found.markdown[table.span.char_start : table.header_end].count("\n") == 1


@pytest.mark.parametrize("kind", ["md", "html", "docx", "pdf"])
async def test_headings_are_detected(parser: LocalParser, tmp_path: Path, kind: str) -> None:
    _, found = await parse_file(
        parser, make_file(tmp_path, f"a.{kind}", sample_files.RENDERERS[kind](PARTS))
    )
    headings = [
        found.markdown[block.span.char_start : block.span.char_end].lstrip("# ")
        for block in found.blocks
        if block.kind == "heading"
    ]
    assert headings == ["Maintenance", "Safety"]


async def test_parsing_part_twice_returns_same_bytes(parser: LocalParser, tmp_path: Path) -> None:
    given = make_file(tmp_path, "a.pdf", sample_files.render_pdf(PARTS))
    plan = await parser.plan(given)
    assert await parser.parse(given, plan, plan.parts[0]) == await parser.parse(
        given, plan, plan.parts[0]
    )


async def test_long_pdf_is_split_into_page_ranges(parser: LocalParser, tmp_path: Path) -> None:
    plan, found = await parse_file(
        parser, make_file(tmp_path, "a.pdf", sample_files.render_numbered_pages(MAX_PAGES))
    )
    assert plan.parts == ("pages 1-16", "pages 17-32", "pages 33-40")
    assert plan.pages == found.pages == MAX_PAGES
    assert [block.span.page for block in found.blocks] == list(range(1, MAX_PAGES + 1))
    assert all(block.span.box and 0.1 < block.span.box[1] < 0.2 for block in found.blocks)


async def test_only_pages_without_text_are_sent_to_ocr(
    parser: LocalParser, ocr: FakeOcr, tmp_path: Path
) -> None:
    before = ocr.pages_read
    plan, found = await parse_file(
        parser, make_file(tmp_path, "a.pdf", sample_files.render_scanned_pdf(WORDS, text_pages=5))
    )
    assert ocr.pages_read == before + 1
    assert plan.parts == ("pages 1-2", "pages 3-4", "pages 5-6")
    assert found.ocr_pages == [6]
    last = found.blocks[-1]
    assert found.markdown[last.span.char_start : last.span.char_end] == WORDS
    assert (last.span.page, last.span.box) == (6, (0.1, 0.1, 0.9, 0.2))


async def test_image_page_without_text_leaves_warning(tmp_path: Path) -> None:
    data = sample_files.render_scanned_pdf(WORDS, text_pages=5)
    async with aclosing(LocalParser(FakeOcr(), max_pages=MAX_PAGES, deadline_s=60)) as engine:
        _, found = await parse_file(engine, make_file(tmp_path, "a.pdf", data))
    assert [(notice.code, notice.detail) for notice in found.warnings] == [
        ("PAGE_WITHOUT_TEXT", "Page 6 is an image in which no text was found.")
    ]


@pytest.mark.parametrize("suffix", ["png", "jpg", "tif"])
async def test_image_is_read_as_one_ocr_page(
    parser: LocalParser, tmp_path: Path, suffix: str
) -> None:
    plan, found = await parse_file(
        parser, make_file(tmp_path, f"a.{suffix}", sample_files.render_text_image("x", suffix))
    )
    assert (plan.pages, found.ocr_pages, found.markdown) == (1, [1], WORDS)


async def test_mislabeled_file_is_parsed_by_content_with_notice(
    parser: LocalParser, tmp_path: Path
) -> None:
    plan, found = await parse_file(
        parser, make_file(tmp_path, "a.docx", sample_files.render_html(PARTS))
    )
    assert [notice.code for notice in plan.notices] == ["TYPE_MISMATCH"]
    assert "# Maintenance" in found.markdown


async def test_document_without_text_has_no_blocks(parser: LocalParser, tmp_path: Path) -> None:
    _, found = await parse_file(parser, make_file(tmp_path, "a.txt", b" \n \n"))
    assert (found.markdown, found.blocks) == ("", [])


BAD_FILES: dict[str, tuple[Callable[[], bytes], str]] = {
    "truncated pdf": (lambda: sample_files.render_pdf(PARTS)[:-600], "CORRUPT_DOCUMENT"),
    "truncated docx": (lambda: sample_files.render_docx(PARTS)[:4000], "CORRUPT_DOCUMENT"),
    "truncated picture": (lambda: sample_files.render_text_image("x")[:500], "CORRUPT_DOCUMENT"),
    "broken gif": (lambda: b"GIF89a" + bytes(40), "CORRUPT_DOCUMENT"),
    "encrypted pdf": (lambda: sample_files.render_encrypted_pdf(), "ENCRYPTED_DOCUMENT"),
    "pdf without pages": (lambda: sample_files.render_empty_pdf(), "NO_PAGES"),
    "too many pages": (lambda: sample_files.render_numbered_pages(MAX_PAGES + 1), "TOO_MANY_PAGES"),
    "lying zip bomb": (lambda: sample_files.make_understated_archive_bomb(), "ARCHIVE_BOMB"),
    "program": (lambda: b"\x7fELF\x02\x01\x01" + bytes(range(256)) * 8, "UNSUPPORTED_TYPE"),
}


@pytest.mark.parametrize("name", BAD_FILES)
async def test_bad_file_is_rejected_with_code_and_remedy(
    parser: LocalParser, tmp_path: Path, name: str
) -> None:
    make_data, code = BAD_FILES[name]
    with pytest.raises(PermanentError) as caught:
        await parse_file(parser, make_file(tmp_path, "a", make_data()))
    assert (caught.value.code, bool(caught.value.remedy)) == (code, True)
    assert not any(
        place in f"{caught.value.detail} {caught.value}" for place in (str(tmp_path), "/proc/")
    ), "messages name no path of this machine"


async def test_fingerprint_depends_on_ocr_engine() -> None:
    assert (
        LocalParser(FakeOcr("a")).fingerprint
        == LocalParser(FakeOcr("a")).fingerprint
        != LocalParser(FakeOcr("b")).fingerprint
    )


def make_shared_string_workbook() -> bytes:
    office = "http://schemas.openxmlformats.org"
    main, relations = f"{office}/spreadsheetml/2006/main", f"{office}/package/2006/relationships"
    kinds = f"{office}/officeDocument/2006/relationships"
    types = "application/vnd.openxmlformats-officedocument.spreadsheetml"
    cell = "<c t='s'><v>0</v></c>"
    row = f"<row>{cell * 30}</row>"
    parts = {
        "[Content_Types].xml": (
            f'<Types xmlns="{office}/package/2006/content-types"><Default Extension="xml" '
            f'ContentType="{types}.sheet.main+xml"/></Types>'
        ),
        "_rels/.rels": (
            f'<Relationships xmlns="{relations}"><Relationship Id="a" '
            f'Type="{kinds}/officeDocument" Target="xl/workbook.xml"/></Relationships>'
        ),
        "xl/workbook.xml": (
            f'<workbook xmlns="{main}" xmlns:r="{kinds}"><sheets><sheet name="A" sheetId="1" '
            'r:id="a"/></sheets></workbook>'
        ),
        "xl/_rels/workbook.xml.rels": (
            f'<Relationships xmlns="{relations}">'
            f'<Relationship Id="a" Type="{kinds}/worksheet" Target="worksheets/sheet1.xml"/>'
            f'<Relationship Id="b" Type="{kinds}/sharedStrings" Target="sharedStrings.xml"/>'
            "</Relationships>"
        ),
        "xl/sharedStrings.xml": f'<sst xmlns="{main}"><si><t>{"word " * 6_500}</t></si></sst>',
        "xl/worksheets/sheet1.xml": (
            f'<worksheet xmlns="{main}"><sheetData>{row * 300}</sheetData></worksheet>'
        ),
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def make_spanning_cell_table(span: str = 'colspan="200" rowspan="200"') -> bytes:
    return f"<table><tr><td {span}>{'word ' * 500}</td></tr>{'<tr></tr>' * 200}</table>".encode()


EXPANDING_FILES = {
    "shared.xlsx": make_shared_string_workbook,
    "spans.html": make_spanning_cell_table,
    "spans.md": make_spanning_cell_table,
}


@pytest.mark.parametrize("name", EXPANDING_FILES)
async def test_text_expansion_bomb_is_rejected_quickly(
    parser: LocalParser, tmp_path: Path, name: str
) -> None:
    data = EXPANDING_FILES[name]()
    assert len(data) < 50_000
    started = time.monotonic()
    with pytest.raises(LimitExceeded) as refused:
        await parse_file(parser, make_file(tmp_path, name, data))
    assert refused.value.code == "TOO_MUCH_TEXT"
    assert "ANABRANCH_INGEST__MAX_CHARACTERS" in refused.value.remedy
    assert time.monotonic() - started < 30
    _, found = await parse_file(parser, make_file(tmp_path, "a.md", b"An ordinary document."))
    assert found.markdown == "An ordinary document."


async def test_csv_with_too_many_cells_is_rejected(parser: LocalParser, tmp_path: Path) -> None:
    with pytest.raises(LimitExceeded) as refused:
        await parse_file(parser, make_file(tmp_path, "a.csv", b"a," * 100_000 + b"\nb" * 10_000))
    assert refused.value.code == "TOO_MANY_CELLS"


async def test_parts_together_respect_document_text_limit(ocr: FakeOcr, tmp_path: Path) -> None:
    pages = [
        Section(f"Page {number}", ["Some words of one page. " * 20]) for number in range(1, 141)
    ]
    given = make_file(tmp_path, "a.pdf", sample_files.RENDERERS["pdf"](pages))
    async with aclosing(LocalParser(ocr, max_characters=55_000, deadline_s=60)) as engine:
        plan = await engine.plan(given)
        parts = [await engine.parse(given, plan, part) for part in plan.parts]
        assert len(parts) > 1
        with pytest.raises(LimitExceeded) as refused:
            engine.assemble(given, plan, parts)
    assert refused.value.code == "TOO_MUCH_TEXT"
