"""Bytes to text: which encoding, and what was wrong with it. Plain text keeps its line breaks; a paragraph ends at a blank line."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass

from engines.drafts import Draft, Piece
from schemas.values import Notice

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_CONTROLS = bytes(byte for byte in range(32) if byte not in b"\t\n\r\f\x1b\x00")
_UNSEEN = re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f-\x9f]")


@dataclass(frozen=True, slots=True)
class Decoded:
    text: str
    encoding: str
    notices: tuple[Notice, ...] = ()


def is_text(head: bytes) -> bool:
    """True unless control bytes make up more than 2 % or NULs, in no pattern of UTF-16, more than 10 %."""
    if any(head.startswith(mark) for mark, _ in _MARKS) or _utf16(head):
        return True
    controls = len(head) - len(head.translate(None, _CONTROLS))
    return controls <= len(head) * 0.02 and head.count(0) <= len(head) * 0.1


def _utf16(head: bytes) -> str | None:
    """UTF-16 without a byte order mark: nearly every other byte is NUL."""
    half = max(1, len(head) // 2)
    if head[1::2].count(0) > 0.7 * half and head[::2].count(0) < 0.1 * half:
        return "utf-16-le"
    if head[::2].count(0) > 0.7 * half and head[1::2].count(0) < 0.1 * half:
        return "utf-16-be"
    return None


def decode(data: bytes, declared: str | None = None, *, partial: bool = False) -> Decoded:
    """UTF-8 unless a byte order mark, the pattern of UTF-16, or failing as UTF-8 say otherwise; then as declared, else Windows-1252.

    `partial` allows a character cut off at the end.
    """
    encoding = next((name for mark, name in _MARKS if data.startswith(mark)), None) or _utf16(data[:4096]) or "utf-8"
    try:
        found = codecs.getincrementaldecoder(encoding)().decode(data, final=not partial)
    except UnicodeDecodeError:
        encoding = declared if declared and _known(declared) else "cp1252"
        found = data.decode(encoding, errors="replace")
    return _clean(found, encoding)


def _known(name: str) -> bool:
    """Whether it is a text encoding of its own: rot13 and base64 are codecs, but no encodings, and `undefined` only raises."""
    try:
        return codecs.lookup(name).name not in ("utf-8", "ascii") and isinstance(b"a".decode(name, errors="replace"), str)
    except (LookupError, ValueError):
        return False


def _clean(found: str, encoding: str) -> Decoded:
    found = found.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").replace("\x85", "\n")
    seen = _UNSEEN.sub("", found)
    notices = (
        [Notice(code="CONTROL_CHARACTERS_REMOVED", detail=f"{len(found) - len(seen)} NUL or control characters were left out")]
        if len(seen) < len(found)
        else []
    )
    if "\ufffd" in seen:
        notices.append(Notice(code="UNDECODABLE_BYTES", detail=f"some bytes are not {encoding} and are shown as \ufffd"))
    return Decoded(seen, encoding, tuple(notices))


def read(data: bytes) -> Piece:
    """A plain text as paragraphs, verbatim."""
    decoded = decode(data)
    paragraphs = (part.strip("\n").rstrip() for part in re.split(r"\n(?:[ \t\f\v]*\n)+|\f", decoded.text))
    return Piece([Draft("paragraph", part) for part in paragraphs if part.strip()], notices=list(decoded.notices))
