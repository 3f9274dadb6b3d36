"""Detection of a file's media type from its bytes.

Its name and claimed type only tell text formats apart.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pure_magic_rs import MagicDb

from engines.parse import archive, text
from engines.parse.errors import make_encrypted_error
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
SPREADSHEET_TYPES = frozenset({XLSX, ODS, XLS})
IMAGE_TYPES = frozenset(
    {"image/png", "image/jpeg", "image/tiff", "image/bmp", "image/webp", "image/gif"}
)

_EXTENSIONS = {
    ".pdf": PDF, ".html": HTML, ".htm": HTML, ".xhtml": HTML, ".md": MARKDOWN, ".markdown": MARKDOWN, ".txt": PLAIN, ".text": PLAIN, ".log": PLAIN,
    ".csv": CSV, ".tsv": CSV, ".eml": MAIL, ".nxml": JATS, ".xlsx": XLSX, ".xlsm": XLSX, ".docx": DOCX, ".docm": DOCX, ".pptx": PPTX, ".odt": ODT,
    ".ods": ODS, ".epub": EPUB, ".xls": XLS, ".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".tif": "image/tiff",
    ".tiff": "image/tiff", ".bmp": "image/bmp", ".webp": "image/webp", ".gif": "image/gif",
}  # fmt: skip
_TYPE_ALIASES = {
    "text/tab-separated-values": CSV,
    "application/csv": CSV,
    "text/x-markdown": MARKDOWN,
    "application/xhtml+xml": HTML,
    "image/jpg": "image/jpeg",
}
_TEXT_TYPES = frozenset({HTML, MARKDOWN, PLAIN, CSV, MAIL, JATS})
_LEGACY_OFFICE = {
    "WordDocument": ("Word 97-2003", "DOCX"),
    "PowerPoint Document": ("PowerPoint 97-2003", "PPTX"),
}
_CONVERT_REMEDY = (
    "Convert it to PDF, an image, DOCX, PPTX, XLSX, ODT, EPUB, HTML, Markdown, CSV, text or e-mail."
)


@dataclass(frozen=True, slots=True)
class DetectedType:
    media_type: str
    claimed_type: str | None
    """Type by the file's name, else as declared by the producer; None if neither is known."""

    @property
    def is_mislabeled(self) -> bool:
        return (
            self.claimed_type is not None
            and self.claimed_type != self.media_type
            and not {self.claimed_type, self.media_type} <= {MARKDOWN, PLAIN}
        )


def detect_media_type(path: Path, name: str | None, media_type: str | None) -> DetectedType:
    """Detect the media type of a file.

    Raises UnreadableDocument (EMPTY_DOCUMENT, UNSUPPORTED_TYPE, ENCRYPTED_DOCUMENT,
    CORRUPT_DOCUMENT) or LimitExceeded (ARCHIVE_BOMB).
    """
    with path.open("rb") as stream:
        head = stream.read(65536)
    if not head:
        raise UnreadableDocument(
            "The file is empty.", code="EMPTY_DOCUMENT", remedy="Check the upload; 0 bytes arrived."
        )
    claimed_type = _parse_claimed_type(name, media_type)
    return DetectedType(
        _detect_by_bytes(path, head) or _detect_by_text(path, head, claimed_type), claimed_type
    )


def _parse_claimed_type(name: str | None, media_type: str | None) -> str | None:
    type_by_name = _EXTENSIONS.get(Path(name).suffix.lower()) if name else None
    declared_type = (media_type or "").split(";")[0].strip().lower()
    declared_type = _TYPE_ALIASES.get(declared_type, declared_type)
    return type_by_name or (declared_type if declared_type in _EXTENSIONS.values() else None)


def _detect_by_bytes(path: Path, head: bytes) -> str | None:
    # PDF readers accept other bytes before the header.
    if b"%PDF-" in head[:1024]:
        return PDF
    if head[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
        return _detect_in_zip(path)
    if head[:8] == b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1":
        return _detect_in_ole(path)
    if head[:5] == b"{\\rtf":
        raise _make_unsupported_error(
            "a rich text (RTF) file", "Save it as DOCX or PDF and send that."
        )
    detected_type: str = _get_magic().first_magic_buffer(head).mime_type
    return detected_type if detected_type in IMAGE_TYPES else None


@cache
def _get_magic() -> MagicDb:
    return MagicDb()


def _detect_in_zip(path: Path) -> str:
    with archive.open_archive(path) as bundle:
        names = set(bundle.namelist())
        declared_type = (
            bundle.read("mimetype")[:100].decode("ascii", "replace").strip()
            if "mimetype" in names
            else ""
        )
    if declared_type in (ODT, ODS, EPUB):
        return declared_type
    for folder, kind in (("word/", DOCX), ("xl/", XLSX), ("ppt/", PPTX)):
        if "[Content_Types].xml" in names and any(name.startswith(folder) for name in names):
            return kind
    raise _make_unsupported_error("a ZIP archive", "Unpack it and send the files in it.")


def _detect_in_ole(path: Path) -> str:
    data = path.read_bytes()
    # OLE directories store stream names as UTF-16.
    if "EncryptedPackage".encode("utf-16-le") in data:
        raise make_encrypted_error("Office file")
    for stream, (program, newer_format) in _LEGACY_OFFICE.items():
        if stream.encode("utf-16-le") in data:
            raise _make_unsupported_error(
                f"a {program} file",
                f"Save it as {newer_format} or PDF in an office program and send that.",
            )
    if "Workbook".encode("utf-16-le") in data or "Book".encode("utf-16-le") in data:
        return XLS
    raise _make_unsupported_error("an OLE container of unknown content", _CONVERT_REMEDY)


def _detect_by_text(path: Path, head: bytes, claimed_type: str | None) -> str:
    if not text.is_text(head):
        kind = _get_magic().first_magic_buffer(head)
        raise _make_unsupported_error(f"{kind.message or kind.mime_type}"[:120], _CONVERT_REMEDY)
    sample = text.decode_text(head, partial=True).text
    if _HTML.search(sample[:4096]):
        return JATS if "<article" in sample and _JATS.search(sample[:4096]) else HTML
    if _JATS.search(sample[:4096]):
        return JATS
    if claimed_type == MAIL or (
        claimed_type is None and len(_MAIL_HEADER.findall(sample[:4096])) >= 3
    ):
        return MAIL if _MAIL_HEADER.search(sample[:4096]) else PLAIN
    if claimed_type in _TEXT_TYPES and claimed_type != JATS:
        return claimed_type
    return _guess_text_type(sample)


_HTML = re.compile(r"<!doctype\s+html|<html[\s>]|<head[\s>]|<body[\s>]", re.I)
_JATS = re.compile(r"<!DOCTYPE\s+article[^<>]*(JATS|NLM)", re.I)
_MAIL_HEADER = re.compile(
    r"^(?:From|To|Subject|Date|Message-ID|MIME-Version|Received|Return-Path|Delivered-To|Content-Type):\s",
    re.M | re.I,
)
_MARKDOWN_SIGNS = re.compile(
    r"^#{1,6} \S|^```|^[-*+] \S|^\d+\. \S|^\|.*\|\s*$|\[[^\[\]]+\]\([^\[)]+\)", re.M
)


def _guess_text_type(sample: str) -> str:
    """Guess CSV if the first lines split evenly, Markdown by three of its signs, else text."""
    lines = [line for line in sample.splitlines()[:20] if line.strip()]
    for delimiter in ",;\t|":
        counts = {line.count(delimiter) for line in lines[:-1] or lines}
        if (
            len(lines) >= 3
            and len(counts) == 1
            and counts.pop() >= 1
            and not lines[0].startswith("|")
        ):
            return CSV
    return MARKDOWN if len(_MARKDOWN_SIGNS.findall(sample)) >= 3 else PLAIN


def _make_unsupported_error(description: str, remedy: str) -> UnreadableDocument:
    return UnreadableDocument(
        f"The file type is not supported: {description}.", code="UNSUPPORTED_TYPE", remedy=remedy
    )
