"""Headers of fetched files, bounded before the standard library parses them."""

from __future__ import annotations

from email.message import Message
from pathlib import PurePosixPath
from urllib.parse import unquote

MAX_HEADER_LENGTH = 1_024
"""`email.message` takes quadratic time. Real headers are far shorter."""


def extract_filename(disposition: str, path: str) -> str | None:
    """Return the name in Content-Disposition (RFC 6266), else the last segment of the path."""
    header = Message()
    header["content-disposition"] = disposition[:MAX_HEADER_LENGTH]
    try:
        header_filename = header.get_filename()
    except (UnicodeError, ValueError):  # the header declares an encoding that its bytes do not fit
        header_filename = None
    name = header_filename or unquote(PurePosixPath(path).name)
    return (
        PurePosixPath(name.replace("\\", "/").encode(errors="replace").decode()).name[:1024] or None
    )
