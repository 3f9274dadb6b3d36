"""Reader of EPUB: the chapters in reading order, with the title and language of the book."""

from __future__ import annotations

import posixpath
import zipfile
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote

from engines.parse import archive, html
from engines.parse.html_tree import HtmlElement, parse_html
from engines.parse.notices import make_corrupt_error
from engines.parse.text import parse_document_date
from engines.parsed_blocks import ParsedPart
from schemas.values import Notice

_CONTAINER = "META-INF/container.xml"
_MAX_METADATA_BYTES = 4 * 2**20
_MAX_STYLE_BYTES = 2**17
_PAGE_TYPES = frozenset({"application/xhtml+xml", "text/html", "application/x-dtbook+xml"})


def read(path: Path) -> ParsedPart:
    with archive.open_archive(path) as bundle:
        package_path = _find_package(bundle)
        package = _parse_metadata(bundle, package_path)
        elements = list(package.iter_descendants())
        # The standard library lowercases tags and keeps prefixes.
        title, language, date = (
            next((e.get_text().strip() for e in elements if e.tag == f"dc:{name}"), None)
            for name in ("title", "language", "date")
        )
        part = ParsedPart(
            title=title or None,
            language=(language or "").split("-")[0].lower() or None,
            document_date=parse_document_date(date),
        )
        style_sheets = _read_style_sheets(bundle, elements, package_path)
        for member in _list_chapters(elements, package_path):
            try:
                chapter = html.read(bundle.read(member), style_sheets=style_sheets)
            except KeyError:
                detail = f"The chapter {member!r} is missing in the file."
                part.notices.append(Notice(code="MISSING_PART", detail=detail))
                continue
            part.title = part.title or chapter.title
            part.blocks += chapter.blocks
            part.notices += chapter.notices
    return part


def _find_package(bundle: zipfile.ZipFile) -> str:
    elements = _parse_metadata(bundle, _CONTAINER).iter_descendants()
    package_path = next(
        (e.attributes["full-path"] for e in elements if "full-path" in e.attributes), None
    )
    if package_path is None:
        raise make_corrupt_error(f"The book's {_CONTAINER} names no package document.")
    return package_path


def _parse_metadata(bundle: zipfile.ZipFile, name: str) -> HtmlElement:
    """Parse a small XML file as markup, so that no entity is ever resolved."""
    try:
        with bundle.open(name) as stream:
            return parse_html(stream.read(_MAX_METADATA_BYTES).decode("utf-8", "replace"))
    except KeyError as error:
        raise make_corrupt_error(f"The book lacks the file {name!r}.") from error


def _list_chapters(elements: list[HtmlElement], package_path: str) -> list[str]:
    items = {e.attributes.get("id"): e.attributes for e in elements if e.tag.endswith("item")}
    folder = posixpath.dirname(package_path)
    chapters = []
    for reference in elements:
        item = items.get(reference.attributes.get("idref"))
        if (
            item is None
            or item.get("media-type") not in _PAGE_TYPES
            or "nav" in item.get("properties", "").split()
        ):
            continue
        chapters.append(_find_member(item, folder))
    return list(dict.fromkeys(chapters))


def _find_member(item: dict[str, str], folder: str) -> str:
    href = unquote(item.get("href", "").partition("#")[0])
    return posixpath.normpath(posixpath.join(folder, href))


def _read_style_sheets(
    bundle: zipfile.ZipFile, elements: list[HtmlElement], package_path: str
) -> str:
    """Return the rules of the book's style sheets, as if every chapter used all of them."""
    folder, sources = posixpath.dirname(package_path), []
    for element in elements:
        if element.attributes.get("media-type") == "text/css":
            with suppress(KeyError), bundle.open(_find_member(element.attributes, folder)) as css:
                sources.append(css.read(_MAX_STYLE_BYTES).decode("utf-8", "replace"))
    return "\n".join(sources)[:_MAX_STYLE_BYTES]
