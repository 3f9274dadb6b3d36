"""One byte range of a file (RFC 9110, section 14)."""

from __future__ import annotations

import re

from schemas.errors import InvalidRequest

_RANGE = re.compile(r"bytes=([0-9]*)-([0-9]*)", re.ASCII)
MAX_DIGITS = 19
"""No file has a place with more: and Python refuses to read thousands of digits as a number."""


def parse_range(header: str | None, size: int) -> tuple[int, int] | None:
    """First byte and the one after the last; None for the whole file (no header, or one that may be ignored, such as several ranges).
    Raises InvalidRequest with code RANGE_NOT_SATISFIABLE."""
    match = _RANGE.fullmatch(header.replace(" ", "")) if header else None
    if header is None or match is None or match.group(0) == "bytes=-":
        return None
    first, last = (digits.lstrip("0") or digits[:1] for digits in match.groups())
    if max(len(first), len(last)) > MAX_DIGITS:
        raise build_unsatisfiable_range(f"{header[:40]}…", size)
    start, end = (int(first), int(last) + 1 if last else size) if first else (max(0, size - int(last)), size)
    if start >= size or end <= start:
        raise build_unsatisfiable_range(header, size)
    return start, min(end, size)


def build_unsatisfiable_range(header: str, size: int) -> InvalidRequest:
    return InvalidRequest(f"range {header} lies outside the {size} bytes", code="RANGE_NOT_SATISFIABLE", remedy="Ask for bytes that exist.")
