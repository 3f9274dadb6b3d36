"""Parse a single byte range (RFC 9110, section 14)."""

from __future__ import annotations

import re

from schemas.errors import InvalidRequest

_RANGE = re.compile(r"bytes=([0-9]*)-([0-9]*)", re.ASCII)
# No file offset has more digits, and Python refuses to parse thousands of them.
MAX_DIGITS = 19


def parse_range(header: str | None, size: int) -> tuple[int, int] | None:
    """Return the first byte and the one after the last; None for the whole file.

    None also for headers that may be ignored, such as several ranges. Raises InvalidRequest with
    code RANGE_NOT_SATISFIABLE.
    """
    match = _RANGE.fullmatch(header.replace(" ", "")) if header else None
    if header is None or match is None or match.group(0) == "bytes=-":
        return None
    first, last = (digits.lstrip("0") or digits[:1] for digits in match.groups())
    if max(len(first), len(last)) > MAX_DIGITS:
        raise build_unsatisfiable_range(f"{header[:40]}…", size)
    start, end = (
        (int(first), int(last) + 1 if last else size) if first else (max(0, size - int(last)), size)
    )
    if start >= size or end <= start:
        raise build_unsatisfiable_range(header, size)
    return start, min(end, size)


def build_unsatisfiable_range(header: str, size: int) -> InvalidRequest:
    return InvalidRequest(
        f"Range {header} is outside the file's {size} bytes.",
        code="RANGE_NOT_SATISFIABLE",
        remedy=f"Request a range below {size}.",
    )
