"""Detection of text encodings, dates that documents state of themselves, a reader of plain text."""

from __future__ import annotations

import codecs
import re
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import date, datetime
from email.utils import parsedate_to_datetime

from chardetng_py import EncodingDetector

from engines.layout.text_runs import join_spaced_line
from engines.parse.notices import set_inside
from engines.parsed_blocks import ParsedBlock, ParsedPart
from schemas.values import Notice

# UTF-32 before UTF-16: the mark of UTF-32-LE begins with that of UTF-16-LE.
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_CONTROL_BYTES = bytes(byte for byte in range(32) if byte not in b"\t\n\r\f\x1b\x00")
_CONTROL_CHARACTERS = re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f]")
_UNMAPPED_BYTES = re.compile("[\x80-\x9f]")
"""Control characters to which ISO encodings decode bytes that no text of theirs has."""
_WEB_ENCODINGS = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "iso8859-11": "cp874",
    "tis-620": "cp874",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "big5": "big5hkscs",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "utf-16": "utf-16-le",
}
"""Encodings that browsers read as a larger one: https://encoding.spec.whatwg.org/#names."""
_ESCAPED_ENCODINGS = ("iso2022", "hz")
_MIN_VALID_SHARE = 10
_CHARSET_PARAMETER = re.compile(r"charset\s*=\s*[\"']?([\w.:-]+)", re.I)
# A context variable, because a reader takes the bytes alone.
_CHARSET: ContextVar[str | None] = ContextVar("charset", default=None)


@dataclass(frozen=True, slots=True)
class DecodedText:
    text: str
    encoding: str
    notices: tuple[Notice, ...] = ()


def is_text(head: bytes) -> bool:
    """Return whether the bytes are text.

    They are if they look like UTF-16, or if at most 2 % are control bytes and 10 % NULs.
    """
    if any(head.startswith(mark) for mark, _ in _BYTE_ORDER_MARKS) or _detect_utf16(head):
        return True
    controls = len(head) - len(head.translate(None, _CONTROL_BYTES))
    return controls <= len(head) * 0.02 and head.count(0) <= len(head) * 0.1


def _detect_utf16(head: bytes) -> str | None:
    """Detect UTF-16 without a byte order mark, where nearly every other byte is NUL."""
    half = max(1, len(head) // 2)
    if head[1::2].count(0) > 0.7 * half and head[::2].count(0) < 0.1 * half:
        return "utf-16-le"
    if head[::2].count(0) > 0.7 * half and head[1::2].count(0) < 0.1 * half:
        return "utf-16-be"
    return None


def declare_charset(media_type: str | None) -> AbstractContextManager[None]:
    """Take the `charset` of a media type as that of the text decoded inside the context."""
    match = _CHARSET_PARAMETER.search(media_type or "")
    return set_inside(_CHARSET, match[1] if match else None)


def copy_charset(declared_type: str | None, media_type: str) -> str:
    """Return `media_type` with the `charset` of the declared type, if it has one."""
    match = _CHARSET_PARAMETER.search(declared_type or "")
    return f"{media_type}; charset={match[1]}" if match else media_type


def decode_text(data: bytes, declared: str | None = None, *, partial: bool = False) -> DecodedText:
    """Decode text of an unknown encoding.

    The encoding is that of the byte order mark, else UTF-16 by pattern, else UTF-8 if the bytes are
    valid, else that of `declare_charset`, else `declared`, else detected as Firefox does.
    `partial` allows a truncated character at the end.
    """
    labels = [label for label in (_CHARSET.get(), declared) if label]
    encodings = [name for label in labels if (name := find_encoding(label))]
    marked = next((name for mark, name in _BYTE_ORDER_MARKS if data.startswith(mark)), None)
    marked = marked or _detect_utf16(data[:4096])
    # Valid UTF-8 is no other encoding by chance, except those of seven bits.
    first = next((name for name in encodings[:1] if name.startswith(_ESCAPED_ENCODINGS)), None)
    encoding = marked or first or "utf-8"
    notices: list[Notice] = []
    try:
        raw_text = codecs.getincrementaldecoder(encoding)().decode(data, final=not partial)
    except UnicodeDecodeError:
        if not marked:
            encoding, notices = _choose_encoding(data, encodings)
        raw_text = data.decode(encoding, errors="replace")
        if partial:
            raw_text = raw_text.rstrip("\ufffd")
    cleaned = _clean(raw_text, encoding)
    return replace(cleaned, notices=(*cleaned.notices, *notices))


def find_encoding(label: str) -> str | None:
    """Return the encoding that browsers use for a label (WHATWG), None if unknown."""
    try:
        # ISO-8859-8-I differs in the direction of display only.
        name = codecs.lookup(label.strip().lower().removeprefix("x-").removesuffix("-i")).name
        # Decoding excludes codecs that are no encodings (rot13, base64) or only raise (undefined).
        return _WEB_ENCODINGS.get(name, name) if b"a".decode(name, errors="replace") else None
    except (LookupError, ValueError):
        return None


def _choose_encoding(data: bytes, encodings: list[str]) -> tuple[str, list[Notice]]:
    """Choose an encoding for bytes that are not valid UTF-8."""
    for encoding in encodings:
        if encoding != "utf-8":
            return encoding, []
    # A few damaged bytes do not make UTF-8 another encoding.
    decoded = data.decode("utf-8", errors="replace")
    n_letters = len(decoded) - sum(map(str.isascii, decoded))
    if decoded.count("\ufffd") * _MIN_VALID_SHARE < n_letters:
        return "utf-8", []
    detector = EncodingDetector()
    detector.feed(data, last=True)
    label, is_likely = detector.guess_assess(tld=None, allow_utf8=False)
    encoding = find_encoding(label) or "cp1252"
    if encoding == "cp1252" and is_likely:
        return encoding, []
    detail = (
        f"No character set is declared. The text was read as {label.lower()}; check a few words, "
        "or save the file as UTF-8."
    )
    return encoding, [Notice(code="CHARSET_GUESSED", detail=detail)]


def _clean(raw_text: str, encoding: str) -> DecodedText:
    raw_text = (
        raw_text.removeprefix("\ufeff")
        .replace("\r\n", "\n")
        .replace("\r", "\n")
        .replace("\x85", "\n")
    )
    raw_text = _UNMAPPED_BYTES.sub("\ufffd", raw_text)
    cleaned = _CONTROL_CHARACTERS.sub("", raw_text)
    notices = (
        [
            Notice(
                code="CONTROL_CHARACTERS_REMOVED",
                detail=f"{len(raw_text) - len(cleaned)} NUL or control characters were removed",
            )
        ]
        if len(cleaned) < len(raw_text)
        else []
    )
    if "\ufffd" in cleaned:
        notices.append(
            Notice(
                code="UNDECODABLE_BYTES",
                detail=f"some bytes are not valid {encoding} and appear as \ufffd",
            )
        )
    return DecodedText(cleaned, encoding, tuple(notices))


def read(data: bytes) -> ParsedPart:
    """Read plain text as verbatim paragraphs, but for words whose letters are typed apart."""
    decoded = decode_text(data)
    paragraphs = (
        part.strip("\n").rstrip() for part in re.split(r"\n(?:[ \t\f\v]*\n)+|\f", decoded.text)
    )
    return ParsedPart(
        [ParsedBlock("paragraph", join_spaced_line(part)) for part in paragraphs if part.strip()],
        notices=list(decoded.notices),
    )


# ISO 8601 with and without separators, and PDF's `D:20260301…`; what follows is a time.
_NUMERIC_DATE = re.compile(r"(?:D:)?(\d{4})([-/.]?)(\d{2})\2(\d{2})(?=$|[T\s]|\d{2})", re.ASCII)
MAX_DATE_CHARACTERS = 100
"""`email.utils` takes quadratic time on long texts."""


def parse_document_date(value: str | date | None) -> date | None:
    """Return the day of a date as it is written there, in its own time zone.

    Reads ISO 8601, PDF dates and RFC 5322 dates. None for all others, such as a year alone.
    """
    if isinstance(value, datetime):
        return value.date()
    if not isinstance(value, str):
        return value
    text = value.strip()[:MAX_DATE_CHARACTERS]
    try:
        if match := _NUMERIC_DATE.match(text):
            year, _, month, day = match.groups()
            return date(int(year), int(month), int(day))
        return parsedate_to_datetime(text).date()
    # An overflow: `email.utils` reads any number of digits as a year.
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
