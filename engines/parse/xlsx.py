"""Reader of XLSX worksheets: cells as the spreadsheet program shows them.

Source: ECMA-376 part 1, 18.3.1 (worksheets), 18.4 (shared strings), 18.8 (styles).
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO
from xml.etree import ElementTree
from xml.parsers import expat

from engines.parse.hidden_text import (
    is_hidden_text_kept,
    make_embedded_notice,
    make_hidden_notice,
)
from engines.parse.number_formats import (
    BUILT_IN_FORMATS,
    format_general,
    format_number,
    format_text,
)
from engines.parse.scripts import format_struck, format_subscript, format_superscript
from engines.parse.sheets import Sheet, parse_address, parse_range
from engines.parse.xml_parts import (
    Element,
    find_named,
    get_relation,
    iter_named,
    read_relations,
    read_xml,
    strip_namespace,
)
from schemas.values import Notice

WORKBOOK = "xl/workbook.xml"
_WHITE = ("FFFFFFFF", "00FFFFFF", "FFFFFF")
_BLOCK_BYTES = 2**18
_MAX_COLUMNS = 16_384


@dataclass(slots=True)
class CellStyle:
    code: str = ""
    is_struck: bool = False
    is_white: bool = False


@dataclass(slots=True)
class Workbook:
    archive: zipfile.ZipFile
    styles: list[CellStyle] = field(default_factory=list)
    strings: list[str] = field(default_factory=list)
    is_1904: bool = False

    @classmethod
    def open(cls, archive: zipfile.ZipFile, relations: dict[str, tuple[str, str]]) -> Workbook:
        parts = dict(relations.values())
        names = set(archive.namelist())
        styles, strings = parts.get("styles", ""), parts.get("sharedStrings", "")
        return cls(
            archive,
            _read_styles(read_xml(archive, styles)) if styles in names else [],
            list(_read_strings(archive.open(strings))) if strings in names else [],
        )

    def format_cell(self, kind: str, value: str, style: CellStyle) -> str:
        """Format a stored value by the cell's type and style."""
        text = value
        match kind:
            case "s":
                index = int(value or -1)
                text = self.strings[index] if 0 <= index < len(self.strings) else ""
            case "b":
                text = "TRUE" if value.strip() == "1" else "FALSE" if value else ""
            case "n" | "" if value.strip():
                number = float(value)
                text = (
                    format_number(number, style.code, is_1904=self.is_1904)
                    if style.code
                    else format_general(number)
                )
        if kind in ("s", "str", "inlineStr") and "@" in style.code and style.code != "@":
            text = format_text(text, style.code)
        return format_struck(text) if style.is_struck else text


def read_sheets(archive: zipfile.ZipFile, notices: list[Notice]) -> Iterator[Sheet]:
    """Yield the worksheets in order; hidden ones only on request, and named in the notices."""
    root = read_xml(archive, WORKBOOK)
    relations = read_relations(archive, WORKBOOK)
    workbook = Workbook.open(archive, relations)
    properties = find_named(root, "workbookPr")
    if properties is not None:
        workbook.is_1904 = properties.get("date1904", "") in ("1", "true")
    hidden = []
    for element in iter_named(root, "sheet"):
        name, state = element.get("name", ""), element.get("state", "visible")
        kind, part = relations.get(get_relation(element), ("", ""))
        if kind != "worksheet":
            continue
        if state != "visible":
            hidden.append(f"sheet {name}")
            if not is_hidden_text_kept():
                continue
        yield _read_sheet(workbook, name, part, notices)
    if hidden:
        notices.append(make_hidden_notice(hidden))


def _read_sheet(workbook: Workbook, name: str, part: str, notices: list[Notice]) -> Sheet:
    parser = _SheetParser(workbook, Sheet(name))
    with workbook.archive.open(part) as stream:
        parser.parse(stream)
    sheet = parser.sheet
    embedded = []
    for kind, target in read_relations(workbook.archive, part).values():
        if target not in workbook.archive.namelist():
            continue
        if kind == "comments":
            sheet.remarks += _read_comments(read_xml(workbook.archive, target))
        elif kind == "drawing":
            sheet.remarks += _read_text_boxes(read_xml(workbook.archive, target))
        elif kind in ("oleObject", "package"):
            embedded.append(target.rpartition("/")[2])
    if embedded:
        notices.append(make_embedded_notice(embedded))
    return sheet


def _read_comments(root: Element) -> Iterator[str]:
    for element in iter_named(root, "comment"):
        words = " ".join("".join(run.text or "" for run in iter_named(element, "t")).split())
        if words:
            yield f"{element.get('ref', '')}: {words}"


def _read_text_boxes(root: Element) -> Iterator[str]:
    for body in iter_named(root, "txBody"):
        words = " ".join(
            "".join(run.text or "" for run in iter_named(paragraph, "t"))
            for paragraph in iter_named(body, "p")
        )
        if words.strip():
            yield " ".join(words.split())


class _SheetParser:
    """Streams the XML of one sheet, because a tree of a large sheet is huge."""

    def __init__(self, workbook: Workbook, sheet: Sheet) -> None:
        self.workbook, self.sheet = workbook, sheet
        self._row, self._column = -1, -1
        self._kind, self._style = "", CellStyle()
        self._value: list[str] = []
        self._runs: list[str] = []
        self._run_style: set[str] = set()
        self._text: list[str] | None = None
        self._has_formula = False
        self._white_cells: set[tuple[int, int]] = set()
        self._has_other_fills = False

    def parse(self, stream: IO[bytes]) -> None:
        parser = expat.ParserCreate(namespace_separator="}")
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._add_text
        for block in iter(lambda: stream.read(_BLOCK_BYTES), b""):
            parser.Parse(block, False)
        parser.Parse(b"", True)
        if not self._has_other_fills:
            self.sheet.hidden_cells |= self._white_cells & self.sheet.cells.keys()

    def _add_text(self, text: str) -> None:
        if self._text is not None:
            self._text.append(text)

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        match strip_namespace(tag):
            case "c":
                self._start_cell(attributes)
            case "v":
                self._text = self._value
            case "f":
                self._has_formula = True
            case "t":
                self._text = []
            case "r":
                self._run_style = set()
            case "strike" | "vertAlign" as mark:
                if attributes.get("val", "1") not in ("0", "false", "baseline"):
                    self._run_style.add(attributes.get("val", "") if mark == "vertAlign" else mark)
            case "row":
                self._row = int(attributes["r"]) - 1 if "r" in attributes else self._row + 1
                self._column = -1
                if _is_true(attributes, "hidden") or attributes.get("ht") == "0":
                    self.sheet.hidden_rows.add(self._row)
            case "col" if _is_true(attributes, "hidden") or attributes.get("width") == "0":
                first, last = int(attributes["min"]), int(attributes["max"])
                self.sheet.hidden_columns |= set(range(first - 1, min(last, _MAX_COLUMNS)))
            case "mergeCell":
                if merged := parse_range(attributes.get("ref", "")):
                    self.sheet.merged.append(merged)
            case "conditionalFormatting" | "tablePart":
                # They may color the ground of white text.
                self._has_other_fills = True

    def _start_cell(self, attributes: dict[str, str]) -> None:
        address = parse_address(attributes.get("r", ""))
        self._row, self._column = address or (self._row, self._column + 1)
        styles, index = self.workbook.styles, int(attributes.get("s", 0))
        self._style = styles[index] if index < len(styles) else CellStyle()
        self._kind = attributes.get("t", "n")
        self._value, self._runs, self._text, self._has_formula = [], [], None, False

    def _end(self, tag: str) -> None:
        match strip_namespace(tag):
            case "t":
                self._runs.append(_mark_run("".join(self._text or ()), self._run_style))
                self._text = None
            case "v":
                self._text = None
            case "r" | "is":
                self._run_style = set()
            case "c":
                value = "".join(self._value)
                if self._has_formula and not value.strip() and self._kind != "str":
                    self.sheet.unsaved_formulas.append((self._row, self._column))
                if self._kind == "inlineStr":
                    value = "".join(self._runs)
                text = self.workbook.format_cell(self._kind, value, self._style)
                self.sheet.add(self._row, self._column, text)
                if self._style.is_white:
                    self._white_cells.add((self._row, self._column))


def _is_true(attributes: dict[str, str], name: str) -> bool:
    return attributes.get(name, "0") in ("1", "true")


def _mark_run(text: str, marks: set[str]) -> str:
    if "superscript" in marks:
        text = format_superscript(text)
    elif "subscript" in marks:
        text = format_subscript(text)
    return format_struck(text) if "strike" in marks else text


def _read_strings(stream: IO[bytes]) -> Iterator[str]:
    for _, element in ElementTree.iterparse(stream):
        if strip_namespace(element.tag) == "si":
            yield "".join(_iter_runs(element))
            element.clear()


def _iter_runs(item: Element) -> Iterator[str]:
    for child in item:
        kind = strip_namespace(child.tag)
        if kind == "t":
            yield child.text or ""
        elif kind == "r":
            marks = set()
            for mark in iter_named(child, "strike", "vertAlign"):
                value = mark.get("val", "1")
                if strip_namespace(mark.tag) == "vertAlign":
                    marks.add(value)
                elif value not in ("0", "false"):
                    marks.add("strike")
            text = find_named(child, "t")
            yield _mark_run((text.text if text is not None else "") or "", marks)


def _read_styles(root: Element) -> list[CellStyle]:
    codes = dict(BUILT_IN_FORMATS)
    for element in iter_named(root, "numFmt"):
        if "numFmtId" in element.attrib:
            codes[int(element.attrib["numFmtId"])] = element.get("formatCode", "")
    fonts = [
        (_is_struck(font), _is_white(find_named(font, "color")))
        for font in find_named(root, "fonts") or ()
    ]
    fills = [_is_white_fill(fill) for fill in find_named(root, "fills") or ()]
    styles = []
    for element in find_named(root, "cellXfs") or ():
        code = codes.get(int(element.get("numFmtId", 0)), "")
        font, fill = int(element.get("fontId", 0)), int(element.get("fillId", 0))
        is_struck, is_white = fonts[font] if font < len(fonts) else (False, False)
        is_on_white = fills[fill] if fill < len(fills) else True
        styles.append(
            CellStyle("" if code == "General" else code, is_struck, is_white and is_on_white)
        )
    return styles


def _is_struck(font: Element) -> bool:
    strike = find_named(font, "strike")
    return strike is not None and strike.get("val", "1") not in ("0", "false")


def _is_white(color: Element | None) -> bool:
    """Return whether a color is white: by its value, or as the theme's first, the background."""
    return (
        color is not None
        and "tint" not in color.attrib
        and (
            color.get("rgb") in _WHITE
            or color.get("theme") == "0"
            or color.get("indexed") in ("1", "9")
        )
    )


def _is_white_fill(fill: Element) -> bool:
    pattern = find_named(fill, "patternFill")
    if pattern is None:
        return False  # a gradient
    kind = pattern.get("patternType", "none")
    return kind == "none" or (kind == "solid" and _is_white(find_named(pattern, "fgColor")))
