"""Detection of text encodings, and a reader of plain text."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass

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
_CONTROL_CHARACTERS = re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f-\x9f]")


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


def decode_text(data: bytes, declared: str | None = None, *, partial: bool = False) -> DecodedText:
    """Decode text of an unknown encoding.

    The encoding is that of the byte order mark, else UTF-16 by pattern, else UTF-8. If decoding
    fails, it is `declared`, else Windows-1252.


    `partial` allows a truncated character at the end.
    """
    encoding = (
        next((name for mark, name in _BYTE_ORDER_MARKS if data.startswith(mark)), None)
        or _detect_utf16(data[:4096])
        or "utf-8"
    )
    try:
        raw_text = codecs.getincrementaldecoder(encoding)().decode(data, final=not partial)
    except UnicodeDecodeError:
        encoding = declared if declared and _is_text_encoding(declared) else "cp1252"
        raw_text = data.decode(encoding, errors="replace")
    return _clean(raw_text, encoding)


def _is_text_encoding(name: str) -> bool:
    """Return whether `name` is a text encoding other than UTF-8 and ASCII."""
    # Decoding excludes codecs that are no encodings (rot13, base64) or only raise (undefined).
    try:
        return codecs.lookup(name).name not in ("utf-8", "ascii") and isinstance(
            b"a".decode(name, errors="replace"), str
        )
    except (LookupError, ValueError):
        return False


def _clean(raw_text: str, encoding: str) -> DecodedText:
    raw_text = (
        raw_text.removeprefix("\ufeff")
        .replace("\r\n", "\n")
        .replace("\r", "\n")
        .replace("\x85", "\n")
    )
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
    """Read plain text as verbatim paragraphs."""
    decoded = decode_text(data)
    paragraphs = (
        part.strip("\n").rstrip() for part in re.split(r"\n(?:[ \t\f\v]*\n)+|\f", decoded.text)
    )
    return ParsedPart(
        [ParsedBlock("paragraph", part) for part in paragraphs if part.strip()],
        notices=list(decoded.notices),
    )
