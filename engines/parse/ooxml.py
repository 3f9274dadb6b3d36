"""DOCX and PPTX rewritten to what docling reads without loss.

docling puts spaces between runs, and drops strikes, raised letters, notes' marks, nested tables,
charts and diagrams. Each paragraph becomes one run with its marks as plain text, and each chart a
table.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from engines.parse.notices import is_hidden_text_kept, list_notices, spend
from engines.parse.number_formats import format_general, format_number
from engines.parse.scripts import apply_marks
from engines.parse.xml_parts import (
    Element,
    find_named,
    get_relation,
    iter_named,
    read_relations,
    read_words,
    strip_namespace,
)
from schemas.values import Notice

Atom = tuple[frozenset[str], str] | Element
"""Text with its marks, or an element that is kept as it is."""
_MAX_SAMPLE = 60
_TEXT_CONTAINERS = frozenset(
    """hyperlink ins moveTo smartTag sdt sdtContent fldSimple customXml bdo dir fld ruby
    rubyBase""".split()  # noqa: SIM905
)
_KEPT = frozenset(
    "drawing pict object AlternateContent oMath oMathPara m commentReference sym".split()  # noqa: SIM905
)
"""Elements that docling reads; others than these and texts, such as field codes, are dropped."""
_SPACES = frozenset("tab br cr ptab".split())  # noqa: SIM905


@dataclass(slots=True)
class Package:
    """The parts of an office file that were read or changed."""

    archive: zipfile.ZipFile
    roots: dict[str, Element] = field(default_factory=dict)
    hidden: list[str] = field(default_factory=list)
    embedded: list[str] = field(default_factory=list)

    def load(self, part: str) -> Element:
        if part not in self.roots:
            data = self.archive.read(part)
            # Readers look for the prefixes that are usual, so that they are written as they were.
            parser = ElementTree.iterparse(io.BytesIO(data), ["start-ns"])
            for _, (prefix, uri) in parser:
                if prefix:
                    _register_prefix(prefix, uri)
            self.roots[part] = parser.root  # type: ignore[attr-defined]
        return self.roots[part]

    def has(self, part: str) -> bool:
        return part in self.archive.NameToInfo

    def relate(self, part: str) -> dict[str, tuple[str, str]]:
        """Return the relations of a part, and note the embedded files among them."""
        relations = read_relations(self.archive, part)
        self.embedded += [
            target.rpartition("/")[2]
            for kind, target in relations.values()
            if kind in ("oleObject", "package")
        ]
        return relations

    def save(self) -> bytes:
        """Return the file without its media, which are not read."""
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as copy:
            for name in dict.fromkeys(self.archive.namelist()):
                if name in self.roots:
                    copy.writestr(name, ElementTree.tostring(self.roots[name], "utf-8"))
                elif name.endswith((".xml", ".rels")):
                    copy.writestr(name, self.archive.read(name))
        return out.getvalue()


def rewrite(path: Path, rewriter: Callable[[Package], None]) -> tuple[bytes, list[Notice]]:
    with zipfile.ZipFile(path) as archive:
        package = Package(archive)
        rewriter(package)
        return package.save(), list_notices(package.hidden, package.embedded)


def _register_prefix(prefix: str, uri: str) -> None:
    try:
        ElementTree.register_namespace(prefix, uri)
    except ValueError:  # reserved, such as ns0
        return


def join_runs(
    paragraph: Element, get_marks: Callable[[Element], frozenset[str]], package: Package
) -> None:
    """Replace the runs of a paragraph by runs of plain text, as few as there can be."""
    namespace = paragraph.tag[: paragraph.tag.rfind("}") + 1]
    properties = [child for child in paragraph if strip_namespace(child.tag) == "pPr"]
    children: list[Element] = []
    text = ""
    for atom in _merge_atoms(_iter_atoms(paragraph, get_marks, frozenset())):
        if isinstance(atom, tuple):
            marks, words = atom
            if "hidden" in marks:
                if words.strip():
                    package.hidden.append(f'text "{words.strip()[:_MAX_SAMPLE]}"')
                if not is_hidden_text_kept():
                    continue
            text += apply_marks(words, marks)
            continue
        if text:
            children.append(make_run(namespace, text))
        text = ""
        children.append(atom)
    if text:
        children.append(make_run(namespace, text))
    paragraph[:] = properties + children
    paragraph.text = None


def make_run(namespace: str, text: str) -> Element:
    run = Element(f"{namespace}r")
    content = ElementTree.SubElement(run, f"{namespace}t")
    content.text = text
    if "wordprocessingml" in namespace:
        content.set("{http://www.w3.org/XML/1998/namespace}space", "preserve")
    return run


def _iter_atoms(
    element: Element, get_marks: Callable[[Element], frozenset[str]], marks: frozenset[str]
) -> Iterator[Atom]:
    for child in element:
        name = strip_namespace(child.tag)
        if name == "r" or name in _TEXT_CONTAINERS:
            own = get_marks(child) if name in ("r", "fld") else marks
            yield from _iter_atoms(child, get_marks, own)
        elif name == "t":
            yield marks, child.text or ""
        elif name in _SPACES:
            yield marks, " "
        elif name == "noBreakHyphen":
            yield marks, "-"
        elif name in ("footnoteReference", "endnoteReference"):
            if number := child.get("number"):
                yield frozenset(), f"[^{number}]"
        elif name in _KEPT:
            yield _wrap(element, child)


def _wrap(parent: Element, child: Element) -> Element:
    """Put an element of a run into a run of its own."""
    if strip_namespace(parent.tag) != "r":
        return child
    run = Element(parent.tag)
    run.append(child)
    return run


def _merge_atoms(atoms: Iterator[Atom]) -> Iterator[Atom]:
    """Join neighboring texts with the same marks, so that a mark is written once."""
    pending: tuple[frozenset[str], str] | None = None
    for atom in atoms:
        if isinstance(atom, tuple) and pending is not None and pending[0] == atom[0]:
            pending = pending[0], pending[1] + atom[1]
            continue
        if pending is not None:
            yield pending
        pending = atom if isinstance(atom, tuple) else None
        if not isinstance(atom, tuple):
            yield atom
    if pending is not None:
        yield pending


def read_drawing(
    package: Package, drawing: Element, relations: dict[str, tuple[str, str]]
) -> tuple[list[list[str]], list[str]]:
    """Return the rows of a drawing's charts and the lines of its diagrams."""
    rows: list[list[str]] = []
    lines: list[str] = []
    for element in iter_named(drawing, "chart", "relIds"):
        is_chart = strip_namespace(element.tag) == "chart"
        relation = get_relation(element, "id" if is_chart else "dm")
        part = relations.get(relation, ("", ""))[1]
        if not package.has(part):
            continue
        root = ElementTree.fromstring(package.archive.read(part))
        if is_chart:
            title, rows = read_chart(root)
            lines += [title] if title else []
        else:
            lines += read_diagram(root)
    return rows, lines


# Data of charts and text of diagrams in office files.
#
# Source: ECMA-376 part 1, 21.2 (charts), 21.4 (diagrams).

_MAX_POINTS = 10_000


def read_chart(root: Element) -> tuple[str, list[list[str]]]:
    """Return a chart's title and its data: a header row, then a row for each category."""
    title = find_named(root, "chart", "title")
    words = read_words(title) if title is not None else ""
    header, columns = [""], []
    categories: dict[int, str] = {}
    for series in iter_named(root, "ser"):
        name = find_named(series, "tx")
        header.append(_read_points(name).get(0, "") if name is not None else "")
        for source in ("cat", "xVal"):
            element = find_named(series, source)
            if element is not None:
                categories = {**_read_points(element), **categories}
        values: dict[int, str] = {}
        for source in ("val", "yVal"):
            element = find_named(series, source)
            if element is not None:
                values = _read_points(element)
        columns.append(values)
    indexes = sorted({*categories, *(index for values in columns for index in values)})
    rows = [
        [categories.get(index, str(index + 1)), *(values.get(index, "") for values in columns)]
        for index in indexes
    ]
    spend(sum(len(cell) for row in rows for cell in row))
    if len(header) == 2 and not header[1]:
        header[1] = words
    return words, [header, *rows] if rows else []


def _read_points(element: Element) -> dict[int, str]:
    """Return the cached points by index; a series' name may be a literal value instead."""
    code = next((child.text or "" for child in iter_named(element, "formatCode")), "")
    points: dict[int, str] = {}
    # The levels of categories such as quarter within year are joined, the outermost first.
    caches = list(iter_named(element, "lvl"))[::-1] or [element]
    for level in caches:
        outer = ""
        found = {
            int(point.get("idx", "0")): _format_point(find_named(point, "v"), code)
            for point in iter_named(level, "pt")
        }
        if level is caches[0]:
            points = found
            continue
        joined = {}
        for index in sorted(found):
            outer = points.get(index, outer)
            joined[index] = f"{outer} {found[index]}".strip()
        points = joined
    if not points:
        literal = next(iter_named(element, "v"), None)
        points = {0: literal.text or ""} if literal is not None else {}
    return dict(list(points.items())[:_MAX_POINTS])


def _format_point(value: Element | None, code: str) -> str:
    text = (value.text or "").strip() if value is not None else ""
    try:
        number = float(text)
    except ValueError:
        return text
    return format_number(number, code) if code not in ("", "General") else format_general(number)


def read_diagram(root: Element) -> list[str]:
    """Return the text of a diagram's nodes in order."""
    lines = []
    for point in iter_named(root, "pt"):
        if point.get("type", "node") in ("node", "asst") and (words := read_words(point)):
            lines.append(words)
    return lines
