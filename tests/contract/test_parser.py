"""What every Parser keeps to, asked of the local one with a fake OCR engine."""

from __future__ import annotations

import io
import time
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from engines.ocr.fake import FakeOcr
from engines.parse import LocalParser
from schemas.errors import LimitExceeded, PermanentError
from schemas.ports.engines import File, ParsePlan
from schemas.values import Transcript
from tests.unit.engines_parse import writing
from tests.unit.engines_parse.writing import Part

WORDS = "These words are only on the picture."
PARTS = [
    Part("Maintenance", ["The pump is oiled every week. It must not run dry."], [["part", "price"], ["seal", "12"], ["valve", "30"]]),
    Part("Safety", ["Wear gloves at all times."]),
]
MOST_PAGES = 40


@pytest.fixture(scope="module")
def ocr() -> FakeOcr:
    return FakeOcr(WORDS)


@pytest.fixture
async def parser(ocr: FakeOcr) -> AsyncIterator[LocalParser]:
    async with LocalParser(ocr, max_pages=MOST_PAGES, deadline_s=60) as engine:
        yield engine


def file(folder: Path, name: str, data: bytes, media_type: str | None = None) -> File:
    path = writing.written(folder, "bytes", data)
    return File(path, name, media_type, len(data))


async def transcript(parser: LocalParser, given: File) -> tuple[ParsePlan, Transcript]:
    plan = await parser.plan(given)
    return plan, parser.assemble(given, plan, [await parser.parse(given, plan, part) for part in plan.parts])


@pytest.mark.parametrize("kind", writing.WRITERS)
async def test_every_format_gives_blocks_in_order_whose_places_are_exact(parser: LocalParser, tmp_path: Path, kind: str) -> None:
    _, found = await transcript(parser, file(tmp_path, f"a.{kind}", writing.WRITERS[kind](PARTS)))
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
async def test_headings_are_found(parser: LocalParser, tmp_path: Path, kind: str) -> None:
    _, found = await transcript(parser, file(tmp_path, f"a.{kind}", writing.WRITERS[kind](PARTS)))
    headings = [found.markdown[block.span.char_start : block.span.char_end].lstrip("# ") for block in found.blocks if block.kind == "heading"]
    assert headings == ["Maintenance", "Safety"]


async def test_a_part_read_again_gives_the_same_bytes(parser: LocalParser, tmp_path: Path) -> None:
    given = file(tmp_path, "a.pdf", writing.pdf(PARTS))
    plan = await parser.plan(given)
    assert await parser.parse(given, plan, plan.parts[0]) == await parser.parse(given, plan, plan.parts[0])


async def test_a_long_pdf_is_worked_in_page_ranges(parser: LocalParser, tmp_path: Path) -> None:
    plan, found = await transcript(parser, file(tmp_path, "a.pdf", writing.pages(MOST_PAGES)))
    assert plan.parts == ("pages 1-16", "pages 17-32", "pages 33-40")
    assert plan.pages == found.pages == MOST_PAGES
    assert [block.span.page for block in found.blocks] == list(range(1, MOST_PAGES + 1))
    assert all(block.span.box and 0.1 < block.span.box[1] < 0.2 for block in found.blocks)


async def test_only_pages_without_text_go_to_ocr(parser: LocalParser, ocr: FakeOcr, tmp_path: Path) -> None:
    before = ocr.seen
    plan, found = await transcript(parser, file(tmp_path, "a.pdf", writing.scan(WORDS, text_pages=5)))
    assert ocr.seen == before + 1
    assert plan.parts == ("pages 1-2", "pages 3-4", "pages 5-6")
    assert found.ocr_pages == [6]
    last = found.blocks[-1]
    assert found.markdown[last.span.char_start : last.span.char_end] == WORDS
    assert (last.span.page, last.span.box) == (6, (0.1, 0.1, 0.9, 0.2))


@pytest.mark.parametrize("suffix", ["png", "jpg", "tif"])
async def test_a_picture_is_a_page_to_be_read(parser: LocalParser, tmp_path: Path, suffix: str) -> None:
    plan, found = await transcript(parser, file(tmp_path, f"a.{suffix}", writing.picture_of_text("x", suffix)))
    assert (plan.pages, found.ocr_pages, found.markdown) == (1, [1], WORDS)


async def test_a_mislabelled_file_is_read_as_what_it_is_with_a_notice(parser: LocalParser, tmp_path: Path) -> None:
    plan, found = await transcript(parser, file(tmp_path, "a.docx", writing.web_page(PARTS)))
    assert [notice.code for notice in plan.notices] == ["TYPE_MISMATCH"]
    assert "# Maintenance" in found.markdown


async def test_a_document_without_text_has_no_blocks(parser: LocalParser, tmp_path: Path) -> None:
    _, found = await transcript(parser, file(tmp_path, "a.txt", b" \n \n"))
    assert (found.markdown, found.blocks) == ("", [])


BAD = {
    "empty": (b"", "EMPTY_DOCUMENT"),
    "truncated pdf": (writing.pdf(PARTS)[:-600], "CORRUPT_DOCUMENT"),
    "truncated docx": (writing.word(PARTS)[:4000], "CORRUPT_DOCUMENT"),
    "truncated picture": (writing.picture_of_text("x")[:500], "CORRUPT_DOCUMENT"),
    "broken gif": (b"GIF89a" + bytes(40), "CORRUPT_DOCUMENT"),
    "encrypted pdf": (writing.encrypted_pdf(), "ENCRYPTED_DOCUMENT"),
    "pdf without pages": (writing.pageless_pdf(), "NO_PAGES"),
    "too many pages": (writing.pages(MOST_PAGES + 1), "TOO_MANY_PAGES"),
    "zip bomb": (writing.bomb(), "ARCHIVE_BOMB"),
    "lying zip bomb": (writing.lying_bomb(), "ARCHIVE_BOMB"),
    "program": (b"\x7fELF\x02\x01\x01" + bytes(range(256)) * 8, "UNSUPPORTED_TYPE"),
    "word 97": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(500) + "WordDocument".encode("utf-16-le"), "UNSUPPORTED_TYPE"),
}


@pytest.mark.parametrize("name", BAD)
async def test_bad_input_is_refused_with_code_and_remedy(parser: LocalParser, tmp_path: Path, name: str) -> None:
    data, code = BAD[name]
    with pytest.raises(PermanentError) as caught:
        await transcript(parser, file(tmp_path, "a", data))
    assert (caught.value.code, bool(caught.value.remedy)) == (code, True)
    assert not any(place in f"{caught.value.detail} {caught.value}" for place in (str(tmp_path), "/proc/")), "messages name no path of this machine"


async def test_the_fingerprint_follows_the_ocr_engine() -> None:
    assert LocalParser(FakeOcr("a")).fingerprint == LocalParser(FakeOcr("a")).fingerprint != LocalParser(FakeOcr("b")).fingerprint


def one_string_in_many_cells() -> bytes:
    office = "http://schemas.openxmlformats.org"
    main, relations = f"{office}/spreadsheetml/2006/main", f"{office}/package/2006/relationships"
    kinds = f"{office}/officeDocument/2006/relationships"
    types = "application/vnd.openxmlformats-officedocument.spreadsheetml"
    cell = "<c t='s'><v>0</v></c>"
    row = f"<row>{cell * 30}</row>"
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{office}/package/2006/content-types"><Default Extension="xml" ContentType="{types}.sheet.main+xml"/></Types>',
        "_rels/.rels": f'<Relationships xmlns="{relations}"><Relationship Id="a" Type="{kinds}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{main}" xmlns:r="{kinds}"><sheets><sheet name="A" sheetId="1" r:id="a"/></sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{relations}"><Relationship Id="a" Type="{kinds}/worksheet" Target="worksheets/sheet1.xml"/>'
        f'<Relationship Id="b" Type="{kinds}/sharedStrings" Target="sharedStrings.xml"/></Relationships>',
        "xl/sharedStrings.xml": f'<sst xmlns="{main}"><si><t>{"word " * 6_500}</t></si></sst>',
        "xl/worksheets/sheet1.xml": f'<worksheet xmlns="{main}"><sheetData>{row * 300}</sheetData></worksheet>',
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def one_cell_over_many(span: str = 'colspan="200" rowspan="200"') -> bytes:
    return f"<table><tr><td {span}>{'word ' * 500}</td></tr>{'<tr></tr>' * 200}</table>".encode()


MULTIPLIED = {"shared.xlsx": one_string_in_many_cells, "spans.html": one_cell_over_many, "spans.md": one_cell_over_many}


@pytest.mark.parametrize("name", MULTIPLIED)
async def test_file_that_multiplies_its_text_is_refused_quickly(parser: LocalParser, tmp_path: Path, name: str) -> None:
    data = MULTIPLIED[name]()
    assert len(data) < 50_000
    started = time.monotonic()
    with pytest.raises(LimitExceeded) as refused:
        await transcript(parser, file(tmp_path, name, data))
    assert refused.value.code == "TOO_MUCH_TEXT"
    assert "ANABRANCH_INGEST__MAX_CHARACTERS" in refused.value.remedy
    assert time.monotonic() - started < 30
    _, found = await transcript(parser, file(tmp_path, "a.md", b"An ordinary document."))
    assert found.markdown == "An ordinary document."


async def test_wide_line_does_not_widen_every_line_without_bound(parser: LocalParser, tmp_path: Path) -> None:
    with pytest.raises(LimitExceeded) as refused:
        await transcript(parser, file(tmp_path, "a.csv", b"a," * 100_000 + b"\nb" * 10_000))
    assert refused.value.code == "TOO_MANY_CELLS"


async def test_parts_may_have_no_more_text_than_a_document(ocr: FakeOcr, tmp_path: Path) -> None:
    pages = [Part(f"Page {number}", ["Some words of one page. " * 20]) for number in range(1, 141)]
    given = file(tmp_path, "a.pdf", writing.WRITERS["pdf"](pages))
    async with LocalParser(ocr, max_characters=55_000, deadline_s=60) as engine:
        plan = await engine.plan(given)
        parts = [await engine.parse(given, plan, part) for part in plan.parts]
        assert len(parts) > 1
        with pytest.raises(LimitExceeded) as refused:
            engine.assemble(given, plan, parts)
    assert refused.value.code == "TOO_MUCH_TEXT"
