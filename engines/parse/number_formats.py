"""Number formats of XLSX workbooks: 21.3 under the format `0.00` is read as 21.30.

Source: ECMA-376 part 1, 18.8.30 (number formats), 18.8.10 (cell formats), 18.3.1.4 (cells).
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator, Mapping
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path, PurePosixPath
from typing import IO
from xml.etree import ElementTree
from xml.parsers import expat

CellFormats = Mapping[tuple[int, int], str]
"""Format code by (row, column), both 0-based, of the cells whose format changes how a number
looks."""

_BUILT_IN_FORMATS = {
    1: "0",
    2: "0.00",
    3: "#,##0",
    4: "#,##0.00",
    9: "0%",
    10: "0.00%",
    37: "#,##0",
    38: "#,##0",
    39: "#,##0.00",
    40: "#,##0.00",
}
# Quoted text, escaped characters, padding, fill, and brackets such as colors.
_LITERAL = re.compile(r'"[^"]*"|\\.|_.|\*.|\[[^\[\]]*+\]')
_DIGITS = re.compile(r"(?<![#0?,])[#0?,]*[#0?](?:\.([0#?]*+))?")
_CURRENCY = re.compile(r"\[\$([^\[\]\-]*+)[^\[\]]*+\]")
_CELL_ADDRESS = re.compile(r"([A-Z]{1,3})([0-9]{1,7})")


def read_formats(path: Path) -> dict[str, CellFormats]:
    """Return the cell formats by sheet name.

    Empty for a workbook without styles or with unreadable ones.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            styles = _read_styles(archive)
            return (
                {
                    name: dict(_read_cells(archive.open(part), styles))
                    for name, part in _read_sheets(archive)
                }
                if styles
                else {}
            )
    except (zipfile.BadZipFile, KeyError, ValueError, ElementTree.ParseError, expat.ExpatError):
        return {}  # calamine still reads the values


def format_number(value: float, code: str) -> str | None:
    """Format a number by its format code.

    Return None if the code does not produce one decimal number.
    """
    sections = code.split(";")
    # A format may have a section of its own for negative numbers.
    section = sections[1] if value < 0 and len(sections) > 1 and sections[1] else sections[0]
    bare = _LITERAL.sub("", section)
    digits = _DIGITS.search(bare)
    if not digits or re.search(r"[dmyhsE@/]", bare, re.I):
        return None
    percent = "%" in bare
    min_decimals = len((digits[1] or "").rstrip("#?"))
    # Round the shortest decimal as Excel does: the binary value of 0.285 lies below 0.285.
    rounded = Decimal(repr(value)) * (100 if percent else 1)
    max_decimals = len(digits[1] or "")
    rounded = rounded.quantize(Decimal(1).scaleb(-max_decimals), ROUND_HALF_UP)
    text = f"{abs(rounded):{',' if ',' in digits[0] else ''}.{max_decimals}f}"
    while max_decimals > min_decimals and text.endswith("0"):
        text, max_decimals = text[:-1], max_decimals - 1
    currency = (
        _CURRENCY.search(section)
        or re.search(r'"([^"$€£¥A-Z]*+[$€£¥A-Z][^"]*+)"', section)
        or re.search(r"([$€£¥])", section)
    )
    symbol = currency[1].strip() if currency else ""
    is_symbol_first = (
        bool(symbol) and section.find(currency[0]) < section.find(digits[0][-1])
        if currency
        else False
    )
    text = text.rstrip(".") + ("%" if percent else "")
    if symbol:
        gap = " " if len(symbol) > 1 else ""
        text = f"{symbol}{gap}{text}" if is_symbol_first else f"{text} {symbol}"
    return f"-{text}" if rounded < 0 else text


def _read_styles(archive: zipfile.ZipFile) -> dict[int, str]:
    """Return the format code by cell style, for the styles that change how numbers look."""
    codes = dict(_BUILT_IN_FORMATS)
    styles: dict[int, str] = {}
    root = ElementTree.fromstring(archive.read("xl/styles.xml"))
    for element in root.iter():
        if _strip_namespace(element.tag) == "numFmt":
            codes[int(element.attrib["numFmtId"])] = element.attrib["formatCode"]
    cell_styles = next(
        (element for element in root if _strip_namespace(element.tag) == "cellXfs"), None
    )
    for number, element in enumerate(cell_styles if cell_styles is not None else ()):
        code = codes.get(int(element.attrib.get("numFmtId", 0)))
        if code and code != "General" and format_number(1.5, code) is not None:
            styles[number] = code
    return styles


def _read_sheets(archive: zipfile.ZipFile) -> Iterator[tuple[str, str]]:
    """Yield each sheet's name with the archive member that holds it."""
    targets = {
        element.attrib["Id"]: element.attrib["Target"]
        for element in ElementTree.fromstring(archive.read("xl/_rels/workbook.xml.rels"))
    }
    for element in ElementTree.fromstring(archive.read("xl/workbook.xml")).iter():
        if _strip_namespace(element.tag) == "sheet":
            relation = next(
                (value for name, value in element.attrib.items() if _strip_namespace(name) == "id"),
                "",
            )
            target = targets.get(relation, "")
            if "worksheets/" in target:
                yield (
                    element.attrib["name"],
                    target.lstrip("/")
                    if target.startswith("/")
                    else str(PurePosixPath("xl", target)),
                )


def _read_cells(
    part: IO[bytes], styles: Mapping[int, str]
) -> Iterator[tuple[tuple[int, int], str]]:
    """Yield the cells with a format, streaming the XML because a tree of a large sheet is huge."""
    cell_formats: list[tuple[tuple[int, int], str]] = []

    def start(tag: str, attributes: dict[str, str]) -> None:
        if _strip_namespace(tag) != "c" or attributes.get("t", "n") != "n":
            return
        code, address = (
            styles.get(int(attributes.get("s", 0))),
            _CELL_ADDRESS.fullmatch(attributes.get("r", "")),
        )
        if code and address:
            column = 0
            for letter in address[1]:
                column = column * 26 + ord(letter) - 64
            cell_formats.append(((int(address[2]) - 1, column - 1), code))

    parser = expat.ParserCreate(namespace_separator="}")
    parser.StartElementHandler = start
    with part:
        for block in iter(lambda: part.read(2**18), b""):
            parser.Parse(block, False)
            yield from cell_formats
            cell_formats.clear()
        parser.Parse(b"", True)
    yield from cell_formats


def _strip_namespace(tag: str) -> str:
    return tag.rpartition("}")[2]
