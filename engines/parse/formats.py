"""The file formats, and detection of a file's format from its bytes.

Its name and claimed type only distinguish text formats.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from pure_magic_rs import MagicDb

from engines.parse import archive, records, text
from engines.parse.notices import make_encrypted_error
from engines.parsed_blocks import ParsedPart
from schemas.errors import UnreadableDocument

# Media types that the detection below names.
HTML, MARKDOWN, PLAIN, CSV = "text/html", "text/markdown", "text/plain", "text/csv"
MAIL, JATS = "message/rfc822", "application/jats+xml"
ZIP, JSON, CALENDAR = "application/zip", "application/json", "text/calendar"
SRT, VTT = "application/x-subrip", "text/vtt"
_OOXML = "application/vnd.openxmlformats-officedocument"
_OPEN_DOCUMENT = "application/vnd.oasis.opendocument"


class PagedReader(Protocol):
    """Functions of a module that reads a paged format. Pages count from 1."""

    def inspect_pages(self, path: Path, max_pages: int) -> tuple[int, bool]:
        """Return the number of pages, checked against the limit, and whether some need OCR."""

    def read(self, path: Path, pages: range) -> ParsedPart:
        """Read these pages; those that need OCR are listed in `unread`."""

    def render_page(self, path: Path, number: int) -> bytes:
        """Render a page as PNG for OCR."""


@dataclass(frozen=True, slots=True)
class Format:
    """A file format: its names, its marks and its reader.

    A binary format without a mark is recognized by libmagic.
    """

    media_type: str
    extensions: tuple[str, ...]
    reader: str
    """Function `module.function` of `engines.parse` that returns a ParsedPart. It takes the bytes
    of a text format and the path of another one. For a paged format, the module of a
    PagedReader."""
    library: str | None = None
    """Distribution that reads it; its version is part of the parser's fingerprint."""
    aliases: tuple[str, ...] = ()
    """Other names of the media type."""
    is_paged: bool = False
    """True if the page limit applies and pages may need OCR."""
    is_text: bool = False
    signature: bytes = b""
    """Bytes within the first `signature_window`, or at the start. PDF readers accept other bytes
    before the header."""
    signature_window: int = 0
    zip_entries: tuple[str, ...] = ()
    """Files and folders of the ZIP container, whose limits then apply. An entry `mimetype` holds
    the media type."""
    ole_streams: tuple[str, ...] = ()

    def read(self, path: Path) -> ParsedPart:
        """Read a document without pages."""
        module, function = self.reader.split(".")
        read = getattr(import_module(f"engines.parse.{module}"), function)
        return cast(ParsedPart, read(path.read_bytes() if self.is_text else path))

    def load_paged_reader(self) -> PagedReader:
        return cast(PagedReader, import_module(f"engines.parse.{self.reader}"))


# The order matters twice: the first match in a ZIP container wins, and the order of the libraries
# is part of the parser's fingerprint. Add formats at the end.
FORMATS = (
    Format("application/pdf", (".pdf",), "pdf", "pypdfium2",
           is_paged=True, signature=b"%PDF-", signature_window=1024),
    Format(f"{_OPEN_DOCUMENT}.text", (".odt",), "office.read_odt", "docling-rs",
           zip_entries=("mimetype",)),
    Format("application/epub+zip", (".epub",), "epub.read",
           zip_entries=("mimetype",)),
    Format(MARKDOWN, (".md", ".markdown"), "markdown.read", "markdown-it-py",
           aliases=("text/x-markdown",), is_text=True),
    Format(f"{_OPEN_DOCUMENT}.spreadsheet", (".ods",),
           "spreadsheets.read_workbook", zip_entries=("mimetype",)),
    Format(f"{_OOXML}.wordprocessingml.document", (".docx", ".docm"),
           "office.read_docx", "docling-rs", zip_entries=("[Content_Types].xml", "word/")),
    Format(f"{_OOXML}.spreadsheetml.sheet", (".xlsx", ".xlsm", ".xlsb"),
           "spreadsheets.read_workbook",
           zip_entries=("[Content_Types].xml", "xl/")),
    Format(f"{_OOXML}.presentationml.presentation", (".pptx",), "office.read_pptx", "docling-rs",
           zip_entries=("[Content_Types].xml", "ppt/")),
    Format("application/vnd.ms-excel", (".xls",), "spreadsheets.read_workbook", "xlrd",
           ole_streams=("Workbook", "Book")),
    Format(HTML, (".html", ".htm", ".xhtml"), "html.read",
           aliases=("application/xhtml+xml",), is_text=True),
    Format(PLAIN, (".txt", ".text", ".log"), "text.read", is_text=True),
    Format(CSV, (".csv", ".tsv"), "spreadsheets.read_csv",
           aliases=("text/tab-separated-values", "application/csv"), is_text=True),
    Format(MAIL, (".eml",), "mail.read", is_text=True),
    Format(JATS, (".nxml",), "office.read_jats", "docling-rs", is_text=True),
    Format("image/png", (".png",), "image", "pillow", is_paged=True),
    Format("image/jpeg", (".jpg", ".jpeg"), "image", "pillow",
           aliases=("image/jpg",), is_paged=True),
    Format("image/tiff", (".tif", ".tiff"), "image", "pillow", is_paged=True),
    Format("image/bmp", (".bmp",), "image", "pillow", is_paged=True),
    Format("image/webp", (".webp",), "image", "pillow", is_paged=True),
    Format("image/gif", (".gif",), "image", "pillow", is_paged=True),
    Format(ZIP, (".zip",), "embedded.read_archive",
           aliases=("application/x-zip-compressed",)),
    Format(CALENDAR, (".ics",), "mail.read_calendar", is_text=True),
    Format(JSON, (".json", ".jsonl", ".ndjson"), "records.read",
           aliases=("application/jsonl", "application/x-ndjson", "application/x-jsonlines",
                    "application/ndjson", "text/json"), is_text=True),
    Format(SRT, (".srt",), "subtitles.read", aliases=("text/srt",), is_text=True),
    Format(VTT, (".vtt",), "subtitles.read", is_text=True),
    Format(f"{_OPEN_DOCUMENT}.presentation", (".odp",), "odp.read", zip_entries=("mimetype",)),
)  # fmt: skip
FORMAT_BY_TYPE = {file_format.media_type: file_format for file_format in FORMATS}
_TYPE_BY_EXTENSION = {
    extension: file_format.media_type
    for file_format in FORMATS
    for extension in file_format.extensions
}
_TYPE_BY_ALIAS = {
    alias: file_format.media_type for file_format in FORMATS for alias in file_format.aliases
}
_LEGACY_OFFICE = {
    "WordDocument": ("Word 97-2003", "DOCX"),
    "PowerPoint Document": ("PowerPoint 97-2003", "PPTX"),
}
_NAMES = ", ".join(file_format.extensions[0][1:].upper() for file_format in FORMATS)
_CONVERT_REMEDY = f"Convert it to one of these formats: {_NAMES}."


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
    type_by_name = _TYPE_BY_EXTENSION.get(Path(name).suffix.lower()) if name else None
    declared_type = (media_type or "").split(";")[0].strip().lower()
    declared_type = _TYPE_BY_ALIAS.get(declared_type, declared_type)
    claimed_type = type_by_name or (declared_type if declared_type in FORMAT_BY_TYPE else None)
    return DetectedType(
        _detect_by_bytes(path, head) or _detect_by_text(path, head, claimed_type), claimed_type
    )


def _detect_by_bytes(path: Path, head: bytes) -> str | None:
    for file_format in FORMATS:
        window = max(file_format.signature_window, len(file_format.signature))
        if file_format.signature and file_format.signature in head[:window]:
            return file_format.media_type
    # A file entry, or the end record of an empty archive.
    if head[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
        return _detect_in_zip(path)
    if head[:8] == b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1":
        return _detect_in_ole(path)
    if head[:5] == b"{\\rtf":
        raise _make_unsupported_error(
            "a rich text (RTF) file", "Save it as DOCX or PDF and send that."
        )
    detected = FORMAT_BY_TYPE.get(get_magic().first_magic_buffer(head).mime_type)
    # A format with a mark of its own was ruled out above, where the mark was not found.
    has_other_mark = detected is not None and (
        detected.is_text or detected.signature or detected.zip_entries or detected.ole_streams
    )
    return detected.media_type if detected is not None and not has_other_mark else None


@cache
def get_magic() -> MagicDb:
    return MagicDb()


def _detect_in_zip(path: Path) -> str:
    with archive.open_archive(path) as bundle:
        names = set(bundle.namelist())
        declared_type = (
            bundle.read("mimetype")[:100].decode("ascii", "replace").strip()
            if "mimetype" in names
            else ""
        )
    folders = {f"{name.partition('/')[0]}/" for name in names if "/" in name}
    for file_format in FORMATS:
        if (
            file_format.zip_entries
            and names | folders >= set(file_format.zip_entries)
            and (
                "mimetype" not in file_format.zip_entries or declared_type == file_format.media_type
            )
        ):
            return file_format.media_type
    if archive.is_plain_archive(names):
        return ZIP
    raise _make_unsupported_error("a ZIP archive", "Unpack it and send the files in it.")


def _detect_in_ole(path: Path) -> str:
    data = path.read_bytes()
    # OLE directories store stream names as UTF-16. A message first: it may hold the others.
    if "__properties_version1.0".encode("utf-16-le") in data:
        raise _make_unsupported_error(
            "an Outlook message (MSG)", "Save it as EML in a mail program and send that."
        )
    if "EncryptedPackage".encode("utf-16-le") in data:
        raise make_encrypted_error("Office file")
    for stream, (program, newer_format) in _LEGACY_OFFICE.items():
        if stream.encode("utf-16-le") in data:
            raise _make_unsupported_error(
                f"a {program} file",
                f"Save it as {newer_format} or PDF in an office program and send that.",
            )
    for file_format in FORMATS:
        if any(stream.encode("utf-16-le") in data for stream in file_format.ole_streams):
            return file_format.media_type
    raise _make_unsupported_error("an OLE container of unknown content", _CONVERT_REMEDY)


def _detect_by_text(path: Path, head: bytes, claimed_type: str | None) -> str:
    if not text.is_text(head):
        kind = get_magic().first_magic_buffer(head)
        raise _make_unsupported_error(f"{kind.message or kind.mime_type}"[:120], _CONVERT_REMEDY)
    sample = text.decode_text(head, partial=True).text
    # Before HTML: a mail may hold a page.
    if _is_mail(sample, claimed_type):
        return MAIL
    if claimed_type == MAIL:
        return PLAIN
    if _SUBTITLES.match(sample):
        return VTT if sample.startswith("WEBVTT") else SRT
    if sample.startswith("BEGIN:VCALENDAR"):
        return CALENDAR
    if _HTML.search(sample[:4096]):
        return JATS if "<article" in sample and _JATS.search(sample[:4096]) else HTML
    if _JATS.search(sample[:4096]):
        return JATS
    if claimed_type is not None and claimed_type != JATS and FORMAT_BY_TYPE[claimed_type].is_text:
        return claimed_type
    return _guess_text_type(sample)


def _is_mail(sample: str, claimed_type: str | None) -> bool:
    """Return whether a text begins with the header fields of a mail.

    Without a claim three known fields are required, so that notes with `Date:` are no mail.
    """
    head = sample[:16384].removeprefix("\n")
    head = re.sub(r"\A>?From \S.*\n", "", head)  # the separator line of mailboxes
    fields = re.split(r"\n(?![ \t])", head.partition("\n\n")[0])
    complete = fields if "\n\n" in head else fields[:-1] or fields
    if not all(map(_HEADER_FIELD.match, complete)):
        return claimed_type == MAIL and _MAIL_HEADER.search(sample[:4096]) is not None
    names = {match[0] for field in complete if (match := _MAIL_HEADER.match(field))}
    return len(names) >= (1 if claimed_type == MAIL else 3)


_HTML = re.compile(r"<!doctype\s+html|<html[\s>]|<head[\s>]|<body[\s>]", re.I)
_JATS = re.compile(r"<!DOCTYPE\s+article[^<>]*(JATS|NLM)", re.I)
_MAIL_HEADER = re.compile(
    r"^(?:From|To|Subject|Date|Message-ID|MIME-Version|Received|Return-Path|Delivered-To|"
    r"Content-Type):\s",
    re.M | re.I,
)
_HEADER_FIELD = re.compile(r"[!-9;-~]+:")
_SUBTITLES = re.compile(r"WEBVTT(?:[ \t].*)?\n|\s*\d+[ \t]*\n\d{1,3}:\d\d:\d\d[\d,.]*[ \t]*-->")
_JSON = re.compile(r"\s*(?:\{\s*(?:\"|\}\s*\Z)|\[\s*[\[{\"\d\]tfn-])")
_MARKDOWN_SIGNS = re.compile(
    r"^#{1,6} \S|^```|^[-*+] \S|^\d+\. \S|^\|.*\|\s*$|\[[^\[\]]+\]\([^\[)]+\)", re.M
)


def _guess_text_type(sample: str) -> str:
    """Guess CSV if the first lines split evenly, Markdown by three of its signs, else text."""
    lines = [line for line in sample.splitlines()[:20] if line.strip()]
    # Before CSV: the lines of JSON records have the same number of commas.
    if _JSON.match(sample) and records.is_json_start(sample):
        return JSON
    for delimiter in ",;\t|":
        # Without the last line, which the end of the sample may cut.
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
