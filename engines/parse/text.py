"""Bytes to text: which encoding, and what was wrong with it. Plain text keeps its line breaks; a paragraph ends at a blank line."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass

from engines.parsed_blocks import ParsedBlock, ParsedPart
from schemas.values import Notice

_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_CONTROL_BYTES = bytes(byte for byte in range(32) if byte not in b"\t\n\r\f\x1b\x00")
_CONTROL_CHARACTERS = re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f-\x9f]")


@dataclass(frozen=True, slots=True)
class DecodedText:
    text: str
    encoding: str
    notices: tuple[Notice, ...] = ()


def is_text(head: bytes) -> bool:
    """True unless control bytes make up more than 2 % or NULs, in no pattern of UTF-16, more than 10 %."""
    if any(head.startswith(mark) for mark, _ in _BYTE_ORDER_MARKS) or _detect_utf16(head):
        return True
    controls = len(head) - len(head.translate(None, _CONTROL_BYTES))
    return controls <= len(head) * 0.02 and head.count(0) <= len(head) * 0.1


def _detect_utf16(head: bytes) -> str | None:
    """UTF-16 without a byte order mark: nearly every other byte is NUL."""
    half = max(1, len(head) // 2)
    if head[1::2].count(0) > 0.7 * half and head[::2].count(0) < 0.1 * half:
        return "utf-16-le"
    if head[::2].count(0) > 0.7 * half and head[1::2].count(0) < 0.1 * half:
        return "utf-16-be"
    return None


def decode_text(data: bytes, declared: str | None = None, *, partial: bool = False) -> DecodedText:
    """UTF-8 unless a byte order mark, the pattern of UTF-16, or failing as UTF-8 say otherwise; then as declared, else Windows-1252.

    `partial` allows a character cut off at the end.
    """
    encoding = next((name for mark, name in _BYTE_ORDER_MARKS if data.startswith(mark)), None) or _detect_utf16(data[:4096]) or "utf-8"
    try:
        raw_text = codecs.getincrementaldecoder(encoding)().decode(data, final=not partial)
    except UnicodeDecodeError:
        encoding = declared if declared and _is_text_encoding(declared) else "cp1252"
        raw_text = data.decode(encoding, errors="replace")
    return _clean(raw_text, encoding)


def _is_text_encoding(name: str) -> bool:
    """Whether it is a text encoding of its own: rot13 and base64 are codecs, but no encodings, and `undefined` only raises."""
    try:
        return codecs.lookup(name).name not in ("utf-8", "ascii") and isinstance(b"a".decode(name, errors="replace"), str)
    except (LookupError, ValueError):
        return False


def _clean(raw_text: str, encoding: str) -> DecodedText:
    raw_text = raw_text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").replace("\x85", "\n")
    cleaned = _CONTROL_CHARACTERS.sub("", raw_text)
    notices = (
        [Notice(code="CONTROL_CHARACTERS_REMOVED", detail=f"{len(raw_text) - len(cleaned)} NUL or control characters were left out")]
        if len(cleaned) < len(raw_text)
        else []
    )
    if "\ufffd" in cleaned:
        notices.append(Notice(code="UNDECODABLE_BYTES", detail=f"some bytes are not {encoding} and are shown as \ufffd"))
    return DecodedText(cleaned, encoding, tuple(notices))


def read(data: bytes) -> ParsedPart:
    """A plain text as paragraphs, verbatim."""
    decoded = decode_text(data)
    paragraphs = (part.strip("\n").rstrip() for part in re.split(r"\n(?:[ \t\f\v]*\n)+|\f", decoded.text))
    return ParsedPart([ParsedBlock("paragraph", part) for part in paragraphs if part.strip()], notices=list(decoded.notices))
