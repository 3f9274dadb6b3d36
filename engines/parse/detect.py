"""What a file really is, from its bytes. Its name and claimed type only tell text formats apart."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pure_magic_rs import MagicDb

from engines.parse import archive, text
from schemas.errors import UnreadableDocument

PDF = "application/pdf"
HTML = "text/html"
MARKDOWN = "text/markdown"
PLAIN = "text/plain"
CSV = "text/csv"
MAIL = "message/rfc822"
JATS = "application/jats+xml"
XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
PPTX = "application/vnd.openxmlformats-officedocument.presentationml.presentation"
ODT = "application/vnd.oasis.opendocument.text"
ODS = "application/vnd.oasis.opendocument.spreadsheet"
EPUB = "application/epub+zip"
XLS = "application/vnd.ms-excel"
SHEETS = frozenset({XLSX, ODS, XLS})
IMAGES = frozenset({"image/png", "image/jpeg", "image/tiff", "image/bmp", "image/webp", "image/gif"})

_EXTENSIONS = {
    ".pdf": PDF, ".html": HTML, ".htm": HTML, ".xhtml": HTML, ".md": MARKDOWN, ".markdown": MARKDOWN, ".txt": PLAIN, ".text": PLAIN, ".log": PLAIN,
    ".csv": CSV, ".tsv": CSV, ".eml": MAIL, ".nxml": JATS, ".xlsx": XLSX, ".xlsm": XLSX, ".docx": DOCX, ".docm": DOCX, ".pptx": PPTX, ".odt": ODT,
    ".ods": ODS, ".epub": EPUB, ".xls": XLS, ".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".tif": "image/tiff",
    ".tiff": "image/tiff", ".bmp": "image/bmp", ".webp": "image/webp", ".gif": "image/gif",
}  # fmt: skip
_OTHER_NAMES = {"text/tab-separated-values": CSV, "application/csv": CSV, "text/x-markdown": MARKDOWN, "application/xhtml+xml": HTML, "image/jpg": "image/jpeg"}
_TEXTS = frozenset({HTML, MARKDOWN, PLAIN, CSV, MAIL, JATS})
_LEGACY = {"WordDocument": ("Word 97-2003", "DOCX"), "PowerPoint Document": ("PowerPoint 97-2003", "PPTX")}
_TAKEN = "PDF, images, DOCX, PPTX, XLSX, ODT, EPUB, HTML, Markdown, CSV, text and e-mail are read"


@dataclass(frozen=True, slots=True)
class Detected:
    media_type: str
    claimed: str | None
    """What the name, else the producer, says; None where neither says anything known."""

    @property
    def mislabelled(self) -> bool:
        return self.claimed is not None and self.claimed != self.media_type and not {self.claimed, self.media_type} <= {MARKDOWN, PLAIN}


def detect(path: Path, name: str | None, media_type: str | None) -> Detected:
    """Raises UnreadableDocument: EMPTY_DOCUMENT, UNSUPPORTED_TYPE, ENCRYPTED_DOCUMENT, CORRUPT_DOCUMENT; LimitExceeded: ARCHIVE_BOMB."""
    with path.open("rb") as stream:
        head = stream.read(65536)
    if not head:
        raise UnreadableDocument("the file is empty", code="EMPTY_DOCUMENT", remedy="Check the upload: 0 bytes arrived.")
    claimed = claim(name, media_type)
    return Detected(_by_bytes(path, head) or _by_text(path, head, claimed), claimed)


def claim(name: str | None, media_type: str | None) -> str | None:
    by_name = _EXTENSIONS.get(Path(name).suffix.lower()) if name else None
    stated = (media_type or "").split(";")[0].strip().lower()
    stated = _OTHER_NAMES.get(stated, stated)
    return by_name or (stated if stated in _EXTENSIONS.values() else None)


def _by_bytes(path: Path, head: bytes) -> str | None:
    if b"%PDF-" in head[:1024]:
        return PDF
    if head[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
        return _in_zip(path)
    if head[:8] == b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1":
        return _in_ole(path)
    if head[:5] == b"{\\rtf":
        raise unsupported("a rich text (RTF) file", "Save it as DOCX or PDF and send that.")
    found: str = _magic().first_magic_buffer(head).mime_type
    return found if found in IMAGES else None


@cache
def _magic() -> MagicDb:
    return MagicDb()


def _in_zip(path: Path) -> str:
    with archive.opened(path) as bundle:
        names = set(bundle.namelist())
        stated = bundle.read("mimetype")[:100].decode("ascii", "replace").strip() if "mimetype" in names else ""
    if stated in (ODT, ODS, EPUB):
        return stated
    for folder, kind in (("word/", DOCX), ("xl/", XLSX), ("ppt/", PPTX)):
        if "[Content_Types].xml" in names and any(each.startswith(folder) for each in names):
            return kind
    raise unsupported("a ZIP archive", "Unpack it and send the files in it.")


def _in_ole(path: Path) -> str:
    data = path.read_bytes()
    if "EncryptedPackage".encode("utf-16-le") in data:
        raise UnreadableDocument("the Office file is encrypted", code="ENCRYPTED_DOCUMENT", remedy="Save it without a password and send that.")
    for stream, (program, newer) in _LEGACY.items():
        if stream.encode("utf-16-le") in data:
            raise unsupported(f"a {program} file", f"Open it in an office program, save it as {newer} or PDF, and send that.")
    if "Workbook".encode("utf-16-le") in data or "Book".encode("utf-16-le") in data:
        return XLS
    raise unsupported("an OLE container of unknown content", f"Convert it: {_TAKEN}.")


def _by_text(path: Path, head: bytes, claimed: str | None) -> str:
    if not text.is_text(head):
        kind = _magic().first_magic_buffer(head)
        raise unsupported(f"{kind.message or kind.mime_type}"[:120], f"Convert it: {_TAKEN}.")
    sample = text.decode(head, partial=True).text
    if _HTML.search(sample[:4096]):
        return JATS if "<article" in sample and _JATS.search(sample[:4096]) else HTML
    if _JATS.search(sample[:4096]):
        return JATS
    if claimed == MAIL or (claimed is None and len(_MAIL_HEADER.findall(sample[:4096])) >= 3):
        return MAIL if _MAIL_HEADER.search(sample[:4096]) else PLAIN
    if claimed in _TEXTS and claimed != JATS:
        return claimed
    return _looks_like(sample)


_HTML = re.compile(r"<!doctype\s+html|<html[\s>]|<head[\s>]|<body[\s>]", re.I)
_JATS = re.compile(r"<!DOCTYPE\s+article[^<>]*(JATS|NLM)", re.I)
_MAIL_HEADER = re.compile(r"^(?:From|To|Subject|Date|Message-ID|MIME-Version|Received|Return-Path|Delivered-To|Content-Type):\s", re.M | re.I)
_MARKDOWN_SIGNS = re.compile(r"^#{1,6} \S|^```|^[-*+] \S|^\d+\. \S|^\|.*\|\s*$|\[[^\[\]]+\]\([^\[)]+\)", re.M)


def _looks_like(sample: str) -> str:
    """For a text that nobody has named: CSV when its first lines split evenly, Markdown when it has three of its signs."""
    lines = [line for line in sample.splitlines()[:20] if line.strip()]
    for delimiter in ",;\t|":
        counts = {line.count(delimiter) for line in lines[:-1] or lines}
        if len(lines) >= 3 and len(counts) == 1 and counts.pop() >= 1 and not lines[0].startswith("|"):
            return CSV
    return MARKDOWN if len(_MARKDOWN_SIGNS.findall(sample)) >= 3 else PLAIN


def unsupported(what: str, remedy: str) -> UnreadableDocument:
    return UnreadableDocument(f"this is {what}, which cannot be read", code="UNSUPPORTED_TYPE", remedy=remedy)


__all__ = ["Detected", "claim", "detect", "unsupported"]
