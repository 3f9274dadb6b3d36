"""One byte range of a file (RFC 9110, section 14)."""

from __future__ import annotations

import re

from schemas.errors import InvalidRequest

_RANGE = re.compile(r"^bytes=(\d*)-(\d*)$")


def requested_range(header: str | None, size: int) -> tuple[int, int] | None:
    """First byte and the one after the last; None for the whole file (no header, or one that may be ignored, such as several ranges).
    Raises InvalidRequest with code RANGE_NOT_SATISFIABLE."""
    match = _RANGE.match(header.replace(" ", "")) if header else None
    if match is None or match.group(0) == "bytes=-":
        return None
    first, last = match.groups()
    start, end = (int(first), int(last) + 1 if last else size) if first else (max(0, size - int(last)), size)
    if start >= size or end <= start:
        raise InvalidRequest(f"range {header} lies outside the {size} bytes", code="RANGE_NOT_SATISFIABLE", remedy="Ask for bytes that exist.")
    return start, min(end, size)
