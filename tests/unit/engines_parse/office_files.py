"""Office files of a few parts: OpenDocument, PPTX and XLSB, and the texts that were read."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path

from engines.parsed_blocks import ParsedPart

NS = "urn:oasis:names:tc:opendocument:xmlns"
ODF_NAMESPACES = " ".join(
    f'xmlns:{prefix}="{NS}:{uri}:1.0"'
    for prefix, uri in {
        "office": "office", "text": "text", "style": "style", "table": "table",
        "draw": "drawing", "presentation": "presentation", "manifest": "manifest",
        "fo": "xsl-fo-compatible", "svg": "svg-compatible",
    }.items()
)  # fmt: skip
STYLES = """
<style:style style:name="white" style:family="text"><style:text-properties fo:color="#ffffff"/></style:style>
<style:style style:name="pale" style:family="text"><style:text-properties fo:color="#fcfcfc"/></style:style>
<style:style style:name="tiny" style:family="text"><style:text-properties fo:font-size="1pt"/></style:style>
<style:style style:name="none" style:family="text"><style:text-properties text:display="none"/></style:style>
<style:style style:name="child" style:family="text" style:parent-style-name="white"/>
<style:style style:name="dark" style:family="text" style:parent-style-name="white"><style:text-properties fo:color="#202020"/></style:style>
<style:style style:name="marked" style:family="text" style:parent-style-name="white"><style:text-properties fo:background-color="#104080"/></style:style>
<style:style style:name="blue" style:family="graphic"><style:graphic-properties draw:fill="solid" draw:fill-color="#104080"/></style:style>
<style:style style:name="picture" style:family="graphic"><style:graphic-properties draw:fill="bitmap"/></style:style>
<style:style style:name="off" style:family="drawing-page"><style:drawing-page-properties presentation:visibility="hidden"/></style:style>
<style:style style:name="night" style:family="drawing-page"><style:drawing-page-properties draw:fill="solid" draw:fill-color="#000010"/></style:style>
<style:style style:name="ce" style:family="table-cell"><style:text-properties fo:color="#ffffff"/></style:style>
<style:style style:name="ground" style:family="table-cell"><style:table-cell-properties fo:background-color="#fefefe"/></style:style>
<style:style style:name="same" style:family="table-cell"><style:graphic-properties draw:fill="solid" draw:fill-color="#104080"/><style:text-properties fo:color="#104080"/></style:style>
<style:style style:name="pale-box" style:family="graphic"><style:text-properties fo:color="#fcfcfc"/></style:style>
<style:style style:name="hid" style:family="table"><style:table-properties table:display="false"/></style:style>
<style:style style:name="del" style:family="text"><style:text-properties style:text-line-through-style="solid"/></style:style>
<style:style style:name="sup" style:family="text"><style:text-properties style:text-position="super 58%"/></style:style>
<style:style style:name="head" style:family="table-cell"><style:table-cell-properties fo:background-color="#104080"/><style:text-properties fo:color="#ffffff"/></style:style>
"""  # noqa: E501
MASTER = """<office:document-styles {0}><office:automatic-styles>
<style:page-layout style:name="PM0"><style:page-layout-properties fo:page-width="21cm" fo:page-height="29cm"/></style:page-layout>
<style:page-layout style:name="PM1"><style:page-layout-properties fo:page-width="28cm" fo:page-height="15cm"/></style:page-layout>
</office:automatic-styles><office:master-styles><style:master-page style:name="M" style:page-layout-name="PM1"/>
</office:master-styles></office:document-styles>"""  # noqa: E501


def write_package(path: Path, parts: Mapping[str, str | bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    return path


def write_odf(folder: Path, kind: str, body: str, embedded: str = "") -> Path:
    name = {"odt": "text", "ods": "spreadsheet", "odp": "presentation"}[kind]
    parts = {
        "mimetype": f"application/vnd.oasis.opendocument.{name}",
        "styles.xml": MASTER.format(ODF_NAMESPACES),
        "content.xml": f"<office:document-content {ODF_NAMESPACES}><office:automatic-styles>"
        f"{STYLES}</office:automatic-styles><office:body><office:{name}>{body}</office:{name}>"
        "</office:body></office:document-content>",
        "META-INF/manifest.xml": f"<manifest:manifest {ODF_NAMESPACES}>{embedded}"
        "</manifest:manifest>",
    }
    return write_package(folder / f"a.{kind}", parts)


def make_span(style: str, text: str) -> str:
    return f'<text:span text:style-name="{style}">{text}</text:span>'


def make_box(text: str, place: str = 'svg:x="1cm" svg:y="1cm"', style: str = "") -> str:
    return (
        f'<draw:frame {place} svg:width="9cm" svg:height="2cm" draw:style-name="{style}">'
        f"<draw:text-box><text:p>{text}</text:p></draw:text-box></draw:frame>"
    )


def make_cell(text: str, style: str = "") -> str:
    paragraph = f"<text:p>{text}</text:p>"
    return f'<table:table-cell table:style-name="{style}">{paragraph}</table:table-cell>'


def make_slide(content: str, style: str = "") -> str:
    return f'<draw:page draw:master-page-name="M" draw:style-name="{style}">{content}</draw:page>'


def join_text(part: ParsedPart) -> str:
    return "\n".join(block.text for block in part.blocks)


def list_warnings(part: ParsedPart) -> str:
    return "\n".join(f"{notice.code}: {notice.detail}" for notice in part.notices)


def list_table_lines(part: ParsedPart) -> list[str]:
    text = "\n".join(block.text for block in part.blocks if block.kind == "table")
    return [line for line in text.splitlines() if not set(line) <= set("| -")]


P = "http://schemas.openxmlformats.org/presentationml/2006/main"
A = "http://schemas.openxmlformats.org/drawingml/2006/main"
C = "http://schemas.openxmlformats.org/drawingml/2006/chart"
D = "http://schemas.openxmlformats.org/drawingml/2006/diagram"
R = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
TYPES = (
    '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
    '<Default Extension="xml" ContentType="application/xml"/></Types>'
)


def make_relations(*relations: tuple[str, str, str]) -> str:
    entries = "".join(
        f'<Relationship Id="{name}" Type="{R}/{kind}" Target="{target}"/>'
        for name, kind, target in relations
    )
    uri = "http://schemas.openxmlformats.org/package/2006/relationships"
    return f'<Relationships xmlns="{uri}">{entries}</Relationships>'


def write_pptx(
    folder: Path, *slides: str, background: str = "", attributes: Sequence[str] = (), **parts: str
) -> Path:
    """Write slides of shapes; each may have attributes and use the parts by their names."""
    numbers = range(1, len(slides) + 1)
    files = {
        "[Content_Types].xml": TYPES,
        "_rels/.rels": make_relations(("r1", "officeDocument", "ppt/presentation.xml")),
        "ppt/_rels/presentation.xml.rels": make_relations(
            *((f"s{i}", "slide", f"slides/slide{i}.xml") for i in numbers)
        ),
        "ppt/presentation.xml": f'<p:presentation xmlns:p="{P}" xmlns:r="{R}"><p:sldIdLst>'
        + "".join(f'<p:sldId id="{256 + i}" r:id="s{i}"/>' for i in numbers)
        + '</p:sldIdLst><p:sldSz cx="9144000" cy="6858000"/></p:presentation>',
    }
    for i, shapes, own in zip_longest(numbers, slides, attributes, fillvalue=""):
        files[f"ppt/slides/slide{i}.xml"] = (
            f'<p:sld xmlns:p="{P}" xmlns:a="{A}" xmlns:r="{R}" xmlns:c="{C}" xmlns:dgm="{D}" {own}>'
            f"<p:cSld>{background}<p:spTree>{shapes}</p:spTree></p:cSld></p:sld>"
        )
        if parts:
            relations = make_relations(*((name, name, f"../{name}.xml") for name in parts))
            files[f"ppt/slides/_rels/slide{i}.xml.rels"] = relations
    files |= {f"ppt/{name}.xml": text for name, text in parts.items()}
    return write_package(folder / "a.pptx", files)


def make_fill(color: str, extra: str = "") -> str:
    return f'<a:solidFill><a:srgbClr val="{color}">{extra}</a:srgbClr></a:solidFill>'


def make_shape(run: str, fill: str = "", left: int = 1000, name: str = "Box") -> str:
    return (
        f'<p:sp><p:nvSpPr><p:cNvPr id="2" name="{name}"/><p:cNvSpPr/><p:nvPr/></p:nvSpPr><p:spPr>'
        f'<a:xfrm><a:off x="{left}" y="1000"/><a:ext cx="900000" cy="90000"/></a:xfrm>{fill}'
        f"</p:spPr><p:txBody><a:bodyPr/><a:p>{run}</a:p></p:txBody></p:sp>"
    )


def make_run(text: str, fill: str = "", attributes: str = "") -> str:
    return f"<a:r><a:rPr {attributes}>{fill}</a:rPr><a:t>{text}</a:t></a:r>"


def make_xlsb_record(number: int, data: bytes = b"") -> bytes:
    head = bytes([number]) if number < 128 else bytes([number & 0x7F | 0x80, number >> 7])
    size = len(data)
    return head + (bytes([size]) if size < 128 else bytes([size & 0x7F | 0x80, size >> 7])) + data


def encode_text(text: str) -> bytes:
    return struct.pack("<I", len(text)) + text.encode("utf-16-le")


def make_xlsb() -> dict[str, bytes]:
    styles = (
        make_xlsb_record(44, struct.pack("<H", 164) + encode_text('0.0,,"M"'))
        + make_xlsb_record(43, struct.pack("<HH", 220, 0) + bytes(20))
        + make_xlsb_record(43, struct.pack("<HH", 220, 8) + bytes(20))
        + make_xlsb_record(617)
        + make_xlsb_record(47, struct.pack("<HHH", 0, 0, 0) + bytes(10))
        + make_xlsb_record(47, struct.pack("<HHH", 0, 164, 0) + bytes(10))
        + make_xlsb_record(47, struct.pack("<HHH", 0, 1, 1) + bytes(10))
        + make_xlsb_record(618)
    )

    def row(number: int, flags: int = 0) -> bytes:
        return make_xlsb_record(0, struct.pack("<IIHBB", number, 0, 300, 0, flags) + bytes(5))

    def cell(kind: int, column: int, style: int, data: bytes) -> bytes:
        return make_xlsb_record(kind, struct.pack("<II", column, style) + data)

    sheet = (
        row(0) + cell(7, 0, 0, struct.pack("<I", 0)) + cell(6, 1, 0, encode_text("Value"))
        + row(1) + cell(6, 0, 0, encode_text("sales")) + cell(5, 1, 1, struct.pack("<d", 12.5e6))
        + row(2) + cell(6, 0, 0, encode_text("price"))
        + cell(2, 1, 2, struct.pack("<i", 24 << 2 | 2))
        + row(3, 0x10) + cell(6, 0, 0, encode_text("secret")) + cell(4, 1, 0, b"\1")
        + row(1_048_575) + cell(6, 16_383, 0, encode_text("far"))
    )  # fmt: skip
    book = make_xlsb_record(
        156, struct.pack("<II", 0, 1) + encode_text("r1") + encode_text("Rates")
    )
    book += make_xlsb_record(156, struct.pack("<II", 1, 2) + encode_text("r1") + encode_text("Old"))
    relations = make_relations(
        ("r1", "worksheet", "worksheets/sheet1.bin"),
        ("r2", "styles", "styles.bin"),
        ("r3", "sharedStrings", "sharedStrings.bin"),
    )
    return {
        "xl/workbook.bin": book,
        "xl/_rels/workbook.bin.rels": relations.encode(),
        "xl/worksheets/sheet1.bin": sheet,
        "xl/styles.bin": styles,
        "xl/sharedStrings.bin": make_xlsb_record(19, b"\0" + encode_text("Kind")),
    }


def write_xlsb(folder: Path, parts: Mapping[str, bytes]) -> Path:
    return write_package(folder / "book.xlsb", parts)
