"""Rewriting of DOCX files for docling: runs, notes, nested tables, charts.

Source: ECMA-376 part 1, 17 (WordprocessingML).
"""

from __future__ import annotations

from xml.etree.ElementTree import SubElement

from engines.parse.ooxml import Package, join_runs, make_run, read_drawing
from engines.parse.xml_parts import (
    Element,
    find_named,
    get_attribute,
    iter_children,
    iter_named,
    read_relations,
    read_words,
    read_xml,
    resolve_inheritance,
    strip_namespace,
)

_DOCUMENT = "word/document.xml"
_OFF = ("0", "false", "none", "off", "baseline")
# Half points; a smaller shift adjusts a letter to its line.
_MIN_SHIFT = 6
_TEXT_PARTS = ("header", "footer", "footnotes", "endnotes", "comments")
Marks = dict[str, bool]
"""Marks that a style or run sets or unsets."""


def rewrite_docx(package: Package) -> None:
    relations = package.relate(_DOCUMENT)
    by_kind = dict(relations.values())
    document = package.load(_DOCUMENT)
    styles = _read_styles(package, by_kind.get("styles", ""))
    _number_notes(package, document, by_kind)
    parts = [_DOCUMENT] + [
        part for kind, part in relations.values() if kind in _TEXT_PARTS and package.has(part)
    ]
    for part in parts:
        _rewrite_part(package, part, styles)


def _rewrite_part(package: Package, part: str, styles: dict[str, Marks]) -> None:
    root = package.load(part)
    relations = read_relations(package.archive, part)
    # White text on a ground that may be colored is visible.
    is_colored = find_named(root, "background") is not None
    covered = {
        id(paragraph)
        for container in iter_named(root, "tbl", "txbxContent")
        if strip_namespace(container.tag) != "tbl"
        or next(iter_named(container, "tblStyle", "shd"), None) is not None
        for paragraph in iter_named(container, "p")
    }
    for paragraph in list(iter_named(root, "p")):
        if not paragraph.tag.endswith("main}p"):
            continue
        inherited = _get_style_marks(find_named(paragraph, "pPr", "pStyle"), styles)
        is_shaded = find_named(paragraph, "pPr", "shd") is not None
        is_on_white = not is_colored and id(paragraph) not in covered and not is_shaded
        join_runs(
            paragraph,
            lambda run, base=inherited, white=is_on_white: _get_run_marks(  # type: ignore[misc]
                run, base, styles, white
            ),
            package,
        )
    _insert_drawings(package, root, relations)
    for cell in list(iter_named(root, "tc")):
        _flatten_nested_tables(cell)


def _read_styles(package: Package, part: str) -> dict[str, Marks]:
    if not package.has(part):
        return {}
    own: dict[str, tuple[str, Marks]] = {}
    for style in iter_named(read_xml(package.archive, part), "style"):
        parent = find_named(style, "basedOn")
        own[get_attribute(style, "styleId")] = (
            get_attribute(parent, "val") if parent is not None else "",
            _read_marks(find_named(style, "rPr")),
        )
    return resolve_inheritance(own)


def _read_marks(properties: Element | None) -> Marks:
    marks: Marks = {}
    for element in properties if properties is not None else ():
        value = get_attribute(element, "val", "1")
        match strip_namespace(element.tag):
            case "strike" | "dstrike":
                marks["struck"] = value not in _OFF
            case "vanish" | "webHidden" as name:
                if name == "vanish":
                    marks["hidden"] = value not in _OFF
            case "position" if value.lstrip("-").isdigit() and abs(int(value)) >= _MIN_SHIFT:
                marks["superscript" if int(value) > 0 else "subscript"] = True
            case "vertAlign":
                marks["superscript"] = value == "superscript"
                marks["subscript"] = value == "subscript"
            case "color":
                marks["white"] = value.upper() == "FFFFFF"
            case "shd" | "highlight":
                marks["shaded"] = True
            case "sz":
                marks["tiny"] = value.isdigit() and int(value) <= 2
    return marks


def _get_style_marks(style: Element | None, styles: dict[str, Marks]) -> Marks:
    return styles.get(get_attribute(style, "val"), {}) if style is not None else {}


def _get_run_marks(
    run: Element, inherited: Marks, styles: dict[str, Marks], is_on_white: bool
) -> frozenset[str]:
    properties = find_named(run, "rPr")
    marks = inherited | _get_style_marks(find_named(properties, "rStyle"), styles)
    marks = marks | _read_marks(properties)
    if marks.get("tiny") or (marks.get("white") and is_on_white and not marks.get("shaded")):
        marks = marks | {"hidden": True}
    return frozenset(
        name for name in ("struck", "hidden", "superscript", "subscript") if marks.get(name)
    )


def _number_notes(package: Package, document: Element, by_kind: dict[str, str]) -> None:
    """Number references to notes in order, and put the number before each note."""
    number = 0
    numbers: dict[tuple[str, str], int] = {}
    for reference in iter_named(document, "footnoteReference", "endnoteReference"):
        kind = strip_namespace(reference.tag).removesuffix("Reference")
        key = kind, get_attribute(reference, "id")
        if key not in numbers:
            number += 1
            numbers[key] = number
        reference.set("number", str(numbers[key]))
    for kind in ("footnote", "endnote"):
        part = by_kind.get(f"{kind}s", "")
        if not package.has(part):
            continue
        for note in iter_named(package.load(part), kind):
            mark = numbers.get((kind, get_attribute(note, "id")))
            paragraph = next(iter_named(note, "p"), None)
            if mark and paragraph is not None:
                namespace = paragraph.tag[: paragraph.tag.rfind("}") + 1]
                at = int(find_named(paragraph, "pPr") is not None)
                paragraph.insert(at, make_run(namespace, f"[^{mark}]: "))


def _insert_drawings(
    package: Package, root: Element, relations: dict[str, tuple[str, str]]
) -> None:
    """Put the data of charts and the text of diagrams after their paragraphs."""
    parents = {child: parent for parent in root.iter() for child in parent}
    for drawing in list(iter_named(root, "drawing")):
        rows, lines = read_drawing(package, drawing, relations)
        paragraph: Element | None = drawing
        while paragraph is not None and strip_namespace(paragraph.tag) != "p":
            paragraph = parents.get(paragraph)
        if paragraph is None or not (rows or lines):
            continue
        namespace = paragraph.tag[: paragraph.tag.rfind("}") + 1]
        parent = parents[paragraph]
        at = list(parent).index(paragraph) + 1
        added = [_make_paragraph(namespace, line) for line in lines]
        if rows:
            added.append(_make_table(namespace, rows))
        parent[at:at] = added


def _make_paragraph(namespace: str, text: str) -> Element:
    paragraph = Element(f"{namespace}p")
    paragraph.append(make_run(namespace, text))
    return paragraph


def _make_table(namespace: str, rows: list[list[str]]) -> Element:
    table = Element(f"{namespace}tbl")
    grid = SubElement(table, f"{namespace}tblGrid")
    for _ in rows[0]:
        SubElement(grid, f"{namespace}gridCol")
    for row in rows:
        line = SubElement(table, f"{namespace}tr")
        for text in row:
            SubElement(line, f"{namespace}tc").append(_make_paragraph(namespace, text))
    return table


def _flatten_nested_tables(cell: Element) -> None:
    """Replace each table in a cell by a paragraph of its labels and values."""
    for index, child in enumerate(list(cell)):
        if strip_namespace(child.tag) == "tbl":
            namespace = child.tag[: child.tag.rfind("}") + 1]
            cell[index] = _make_paragraph(namespace, _format_nested_table(child))


def _format_nested_table(table: Element) -> str:
    rows = [list(map(read_words, iter_named(row, "tc"))) for row in iter_children(table, "tr")]
    rows = [row for row in rows if any(row)]
    if all(len(row) <= 2 for row in rows):
        return "; ".join(": ".join(filter(None, row)) for row in rows)
    header = rows[0]
    return "; ".join(
        ", ".join(
            f"{header[i]}: {text}" if i < len(header) and header[i] else text
            for i, text in enumerate(row)
            if text
        )
        for row in rows[1:] or rows
    )
