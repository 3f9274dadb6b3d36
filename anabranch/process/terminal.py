"""Show control characters in foreign texts as escapes: a terminal would obey them."""

from __future__ import annotations

import re
import sys
from typing import Any, TextIO

CONTROL_CHARACTERS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]"
)
"""C0 except tab and LF, DEL, C1, bidirectional marks, line separators and lone surrogates."""


def escape_controls(text: str) -> str:
    """Show control characters as `\\x1b` and `\\u202e`. In JSON the result is valid JSON."""
    return CONTROL_CHARACTERS.sub(
        lambda match: f"\\x{ord(match[0]):02x}" if match[0] < " " else f"\\u{ord(match[0]):04x}",
        text,
    )


class EscapedStream:
    """A text stream that escapes everything written to it."""

    def __init__(self, unescaped: TextIO) -> None:
        self.unescaped = unescaped

    def write(self, text: str) -> int:
        self.unescaped.write(escape_controls(text))
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unescaped, name)


def escape_streams() -> None:
    """Escape stdout and stderr from here on. Idempotent."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if not isinstance(stream, EscapedStream):
            setattr(sys, name, EscapedStream(stream))


def get_unescaped(stream: TextIO) -> TextIO:
    """Return the stream below, for colored output that escapes foreign texts itself."""
    return stream.unescaped if isinstance(stream, EscapedStream) else stream
