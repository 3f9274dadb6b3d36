"""Text documents and slides keep what their runs, notes, tables and charts say."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from xml.sax.saxutils import escape

import docx
import pytest
from docx.enum.style import WD_STYLE_TYPE
from docx.oxml import OxmlElement
from docx.oxml.ns import qn
from docx.shared import RGBColor

from engines.parse.notices import keep_hidden_text
from engines.parse.office import read_docx, read_odt, read_pptx
from engines.parse.scripts import format_struck, format_subscript, format_superscript
from schemas.errors import UnreadableDocument
from tests.unit.engines_parse.office_files import (
    TYPES,
    A,
    C,
    D,
    R,
    join_text,
    list_warnings,
    make_relations,
    make_span,
    write_odf,
    write_package,
    write_pptx,
)

W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"


@pytest.mark.parametrize(
    ("raised", "lowered", "struck"),
    [
        ("⁶", "₆", "~~6~~"),
        ("^k", "_k", "~~k~~"),
        ("th", "_th", "~~th~~"),
        ("(a)", "(a)", "~~(a)~~"),
    ],
)
def test_marks_are_plain_text(raised: str, lowered: str, struck: str) -> None:
    core = struck.strip("~")
    assert format_superscript(core) == raised
    assert format_subscript(core) == lowered
    assert format_struck(f" {core} ") == f" {struck} "


def read_runs(folder: Path, *runs: tuple[str, str]) -> str:
    document = docx.Document()
    styles = document.styles
    style = styles.add_style("Gone", WD_STYLE_TYPE.CHARACTER)
    style.font.strike = True
    paragraph = document.add_paragraph()
    for text, mark in runs:
        run = paragraph.add_run(text)
        if mark == "style":
            run.style = style
        elif mark.lstrip("-").isdigit():
            shift = OxmlElement("w:position")
            shift.set(qn("w:val"), mark)
            run._r.get_or_add_rPr().append(shift)
        elif mark:
            setattr(run.font, mark, True)
    document.save(folder / "a.docx")
    return join_text(read_docx(folder / "a.docx"))


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ((("Sp", ""), ("lit", "bold"), ("ting 12", ""), ("345", "italic")), "Splitting 12345"),
        ((("costs ", ""), ("510", "strike"), (" 480 euros", "")), "costs ~~510~~ 480 euros"),
        ((("costs ", ""), ("5", "double_strike"), ("10 ", "double_strike"), ("480", "")),
         "costs ~~510~~ 480"),
        ((("was ", ""), ("90", "style"), (" 72", "")), "was ~~90~~ 72"),
        ((("10", ""), ("-6", "superscript"), (" m", "")), "10⁻⁶ m"),
        ((("H", ""), ("2", "subscript"), ("O", "")), "H₂O"),
        ((("E=mc", ""), ("2", "superscript"), (".", "")), "E=mc²."),
        ((("10", ""), ("6", "8"), (" m", ""), ("i", "-8"), (" 4", ""), ("2", "2")), "10⁶ m_i 42"),
    ],
)  # fmt: skip
def test_docx_runs_are_joined_as_written(
    tmp_path: Path, runs: tuple[tuple[str, str], ...], expected: str
) -> None:
    assert read_runs(tmp_path, *runs) == expected


def test_docx_hidden_and_white_text_is_left_out_and_named(tmp_path: Path) -> None:
    document = docx.Document()
    paragraph = document.add_paragraph("Seen. ")
    paragraph.add_run("Draft 999. ").font.hidden = True
    paragraph.add_run("Hire me. ").font.color.rgb = RGBColor(255, 255, 255)
    document.save(tmp_path / "a.docx")
    part = read_docx(tmp_path / "a.docx")
    assert join_text(part) == "Seen."
    assert "Draft 999." in list_warnings(part) and "Hire me." in list_warnings(part)
    with keep_hidden_text(True):
        assert join_text(read_docx(tmp_path / "a.docx")) == "Seen. Draft 999. Hire me."


def test_docx_nested_table_is_kept_in_its_cell(tmp_path: Path) -> None:
    document = docx.Document()
    table = document.add_table(2, 2)
    for cell, text in zip(table.rows[0].cells, ("Van", "Limits"), strict=True):
        cell.text = text
    table.cell(1, 0).text = "V-7"
    for rows in (
        [["Load", "1,150 kg"], ["Height", "2.64 m"]],
        [["Day", "Open", "Close"], ["Monday", "8", "17"], ["Friday", "9", "16"]],
    ):
        inner = table.cell(1, 1).add_table(len(rows), len(rows[0]))
        for cells, row in zip(inner.rows, rows, strict=True):
            for cell, text in zip(cells.cells, row, strict=True):
                cell.text = text
    document.save(tmp_path / "a.docx")
    text = join_text(read_docx(tmp_path / "a.docx"))
    assert "Load: 1,150 kg; Height: 2.64 m" in text
    assert "Day: Monday, Open: 8, Close: 17; Day: Friday, Open: 9, Close: 16" in text


def make_chart() -> str:
    def points(*values: str) -> str:
        items = "".join(f'<c:pt idx="{i}"><c:v>{v}</c:v></c:pt>' for i, v in enumerate(values))
        return f"<c:strRef><c:strCache>{items}</c:strCache></c:strRef>"

    series = "".join(
        f"<c:ser><c:tx>{points(name)}</c:tx><c:cat>{points('2023', '2024')}</c:cat>"
        f"<c:val>{points(*values)}</c:val></c:ser>"
        for name, values in (("Adults", ("5100", "6400")), ("Children", ("800", "910")))
    )
    chart = f"<c:chart><c:barChart>{series}</c:barChart></c:chart>"
    return f'<c:chartSpace xmlns:c="{C}">{chart}</c:chartSpace>'


CHART_LINES = ["|  | Adults | Children |", "| 2023 | 5100 | 800 |", "| 2024 | 6400 | 910 |"]


def write_docx(folder: Path, body: str, *relations: tuple[str, str, str], **parts: str) -> Path:
    return write_package(
        folder / "a.docx",
        {
            "[Content_Types].xml": TYPES,
            "_rels/.rels": make_relations(("r1", "officeDocument", "word/document.xml")),
            "word/document.xml": f'<w:document xmlns:w="{W}" xmlns:r="{R}" xmlns:c="{C}">'
            f"<w:body>{body}</w:body></w:document>",
            "word/_rels/document.xml.rels": make_relations(*relations),
            **{f"word/{name}.xml": text for name, text in parts.items()},
        },
    )


def test_docx_notes_are_tied_to_their_sentence(tmp_path: Path) -> None:
    note = '<w:footnote w:id="{}"><w:p><w:r><w:t>{}</w:t></w:r></w:p></w:footnote>'
    path = write_docx(
        tmp_path,
        '<w:p><w:r><w:t>Twelve days</w:t></w:r><w:r><w:footnoteReference w:id="5"/></w:r>'
        '<w:r><w:t>, 40 euros</w:t></w:r><w:r><w:footnoteReference w:id="2"/></w:r></w:p>',
        ("n1", "footnotes", "footnotes.xml"),
        footnotes=f'<w:footnotes xmlns:w="{W}">{note.format(2, "Express 95.")}'
        f"{note.format(5, 'Islands nineteen.')}</w:footnotes>",
    )
    text = join_text(read_docx(path))
    assert "Twelve days[^1], 40 euros[^2]" in text
    assert "[^1]: Islands nineteen." in text and "[^2]: Express 95." in text


def test_docx_chart_is_a_table_and_embedded_files_are_named(tmp_path: Path) -> None:
    path = write_docx(
        tmp_path,
        '<w:p><w:r><w:drawing><c:chart r:id="c1"/></w:drawing></w:r></w:p>',
        ("c1", "chart", "chart.xml"),
        ("e1", "package", "embeddings/prices.xlsx"),
        chart=make_chart(),
    )
    part = read_docx(path)
    assert all(line in join_text(part) for line in CHART_LINES)
    assert "EMBEDDED_FILE: Files inside the document were not read: prices.xlsx." in list_warnings(
        part
    )


def make_shape(runs: str, properties: str = "", hidden: str = "") -> str:
    return (
        f'<p:sp><p:nvSpPr><p:cNvPr id="2" name="Box" {hidden}/><p:cNvSpPr/><p:nvPr>{properties}'
        "</p:nvPr></p:nvSpPr><p:spPr/><p:txBody><a:bodyPr/><a:p>"
        f"{runs}</a:p></p:txBody></p:sp>"
    )


def make_slide_run(text: str, attributes: str = "") -> str:
    return f"<a:r><a:rPr {attributes}/><a:t>{escape(text)}</a:t></a:r>"


def make_frame(content: str) -> str:
    return (
        '<p:graphicFrame><p:nvGraphicFramePr><p:cNvPr id="4" name="F"/><p:cNvGraphicFramePr/>'
        '<p:nvPr/></p:nvGraphicFramePr><p:xfrm><a:off x="0" y="0"/><a:ext cx="9" cy="9"/></p:xfrm>'
        f'<a:graphic><a:graphicData uri="{C}">{content}</a:graphicData></a:graphic>'
        "</p:graphicFrame>"
    )


def test_pptx_runs_are_joined_with_their_marks(tmp_path: Path) -> None:
    shapes = make_shape(
        make_slide_run("12")
        + make_slide_run("345 m", 'b="1"')
        + make_slide_run("2", 'baseline="30000"')
        + make_slide_run(" for ")
        + make_slide_run("90", 'strike="sngStrike"')
        + make_slide_run(" 72")
    )
    assert join_text(read_pptx(write_pptx(tmp_path, shapes))) == "12345 m² for ~~90~~ 72"


def test_pptx_only_title_placeholder_is_heading(tmp_path: Path) -> None:
    shapes = make_shape(make_slide_run("Harbour plan"), '<p:ph type="title"/>') + make_shape(
        make_slide_run("Pier B takes 22 boats", 'sz="4000" b="1"')
    )
    kinds = {block.text: block.kind for block in read_pptx(write_pptx(tmp_path, shapes)).blocks}
    assert kinds == {"Harbour plan": "heading", "Pier B takes 22 boats": "paragraph"}


def test_pptx_chart_and_diagram_are_read(tmp_path: Path) -> None:
    point = '<dgm:pt modelId="{0}"><dgm:t><a:p><a:r><a:t>{1}</a:t></a:r></a:p></dgm:t></dgm:pt>'
    path = write_pptx(
        tmp_path,
        make_frame('<c:chart r:id="chart"/>') + make_frame('<dgm:relIds r:dm="data"/>'),
        chart=make_chart(),
        data=f'<dgm:dataModel xmlns:dgm="{D}" xmlns:a="{A}"><dgm:ptLst>'
        f"{point.format(1, 'Bake 90 minutes')}{point.format(2, 'Cool 14 plates')}"
        "</dgm:ptLst></dgm:dataModel>",
    )
    text = join_text(read_pptx(path))
    assert all(line in text for line in [*CHART_LINES, "Bake 90 minutes", "Cool 14 plates"])


def test_pptx_hidden_slides_and_shapes_are_left_out_and_named(tmp_path: Path) -> None:
    path = write_pptx(
        tmp_path,
        make_shape(make_slide_run("Seen")),
        make_shape(make_slide_run("Draft fee 999")),
        make_shape(make_slide_run("secret"), hidden='hidden="1"')
        + make_shape(make_slide_run("Last")),
        attributes=("", 'show="0"'),
    )
    part = read_pptx(path)
    assert [(block.text, block.page) for block in part.blocks] == [("Seen", 1), ("Last", 3)]
    assert "slide 2" in list_warnings(part) and "shape Box on slide 3" in list_warnings(part)
    with keep_hidden_text(True):
        assert "Draft fee 999" in join_text(read_pptx(path))


def test_odt_runs_marks_and_notes_are_kept(tmp_path: Path) -> None:
    note = (
        '<text:note text:note-class="footnote"><text:note-citation>1</text:note-citation>'
        "<text:note-body><text:p>Net.</text:p></text:note-body></text:note>"
    )
    runs = f"Sp{make_span('x', 'lit')}ting costs {make_span('del', '510')} 480 for 10"
    body = f"<text:p>{runs}{make_span('sup', '6')}{note}.</text:p>"
    text = join_text(read_odt(write_odf(tmp_path, "odt", body)))
    assert "Splitting costs ~~510~~ 480 for 10⁶[^1]." in text and "[^1]: Net." in text


ENTITIES = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">' + "".join(
    f'<!ENTITY {chr(98 + i)} "{f"&{chr(97 + i)};" * 10}">' for i in range(12)
) + "]>"  # fmt: skip


@pytest.mark.parametrize(
    "make",
    [
        lambda: "<w:p>" * 50_000,
        lambda: ENTITIES + "<x>&m;</x>",
        lambda: '<!DOCTYPE x [<!ENTITY f SYSTEM "file:///etc/passwd">]><x>&f;</x>',
        lambda: f'<w:document xmlns:w="{W}">{"<w:sdt>" * 9000}{"</w:sdt>" * 9000}</w:document>',
    ],
)
def test_hostile_docx_is_refused(tmp_path: Path, make: Callable[[], str]) -> None:
    path = write_docx(tmp_path, "")
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name).decode() for name in archive.namelist()}
    with pytest.raises(UnreadableDocument) as caught:
        read_docx(write_package(path, parts | {"word/document.xml": make()}))
    assert caught.value.code == "CORRUPT_DOCUMENT"
