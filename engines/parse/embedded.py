"""Files inside a document: attachments of a mail, members of an archive, embedded files.

Each becomes a section of the document under a heading with its name; a file that cannot be read
becomes a warning.
"""

from __future__ import annotations

import io
import os
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import cast

from engines.parse import archive, assembly
from engines.parse.formats import FORMAT_BY_TYPE, detect_media_type
from engines.parse.notices import set_inside, spend
from engines.parse.text import declare_charset
from engines.parsed_blocks import ParsedBlock, ParsedPart
from schemas.errors import AnabranchError
from schemas.values import Notice, drop_direction_controls

MAX_DEPTH = 3
MAX_FILES = 200
MAX_FILE_BYTES = 15 * 2**20
MAX_TOTAL_BYTES = 64 * 2**20
_MAX_PAGES = 300
_MAX_NAME_CHARS = 120


@dataclass(slots=True)
class _EmbeddingBudget:
    """Counts the files inside one document, at all depths."""

    depth: int = 0
    n_files: int = 0
    n_bytes: int = 0


class MemoryFile(io.BytesIO):
    """Bytes with the methods of a path that readers use; a sandbox child may write no file."""

    def open(self, mode: str = "rb") -> io.BytesIO:
        return io.BytesIO(self.getvalue())

    def read_bytes(self) -> bytes:
        return self.getvalue()

    def stat(self) -> os.stat_result:
        return os.stat_result((0, 0, 0, 0, 0, 0, len(self.getbuffer()), 0, 0, 0))


# A context variable, because a nested file is read by a reader that takes the bytes alone.
_BUDGET: ContextVar[_EmbeddingBudget | None] = ContextVar("embedding_budget", default=None)


def limit_embedded_files() -> AbstractContextManager[None]:
    """Limit the files that `read_embedded` reads inside the context."""
    return set_inside(_BUDGET, _EmbeddingBudget())


def read_embedded(
    name: str, data: bytes, media_type: str | None = None, *, label: str = "Attachment"
) -> ParsedPart:
    """Read a file inside a document as a section; return a warning instead if it cannot be read.

    The blocks have no pages or boxes, which would be taken for those of the document.
    """
    name = drop_direction_controls(" ".join(name.split()))[:_MAX_NAME_CHARS] or "unnamed"
    budget = _BUDGET.get() or _EmbeddingBudget()
    if reason := _find_refusal(data, budget):
        return make_unread_part(name, media_type, len(data), reason)
    budget.n_files += 1
    budget.n_bytes += len(data)
    budget.depth += 1
    try:
        with set_inside(_BUDGET, budget):
            part = _read_file(name, data, media_type)
    except AnabranchError as error:
        return make_unread_part(name, media_type, len(data), error.detail)
    # A library's failure must not cost the document that holds the file.
    except (ValueError, LookupError, TypeError, AttributeError, OSError, RecursionError) as error:
        reason = f"its reader failed ({type(error).__name__})"
        return make_unread_part(name, media_type, len(data), reason)
    finally:
        budget.depth -= 1
    notices = [
        notice
        if notice.code == "ATTACHMENT_NOT_INDEXED"
        else Notice(code=notice.code, detail=f"{name}: {notice.detail}")
        for notice in part.notices
    ]
    if part.unread:
        detail = f"{len(part.unread)} of its pages are images, which are read in documents only"
        notices += make_unread_part(name, media_type, len(data), detail).notices
    blocks = assembly.assign_levels(assembly.remove_running_headers(part.blocks))
    spend(sum(len(block.text) for block in blocks))
    if not any(block.text.strip() for block in blocks):
        if notices:
            return ParsedPart(notices=notices)
        return make_unread_part(name, media_type, len(data), "it contains no text")
    for block in blocks:
        block.page = block.box = block.size = None
        block.level = min(6, block.level + 2) if block.level else None
    return ParsedPart(
        [ParsedBlock("heading", f"{label}: {name}", level=2), *blocks], notices=notices
    )


def make_unread_part(name: str, media_type: str | None, n_bytes: int, reason: str) -> ParsedPart:
    """Return the warning for a file inside a document whose text is not indexed."""
    kind = f"{media_type}, " if media_type else ""
    name = drop_direction_controls(name)
    detail = (
        f"{name} ({kind}{n_bytes:,} bytes) was not indexed: {reason.rstrip('.')}. "
        "Ingest it as a document of its own."
    )
    return ParsedPart(notices=[Notice(code="ATTACHMENT_NOT_INDEXED", detail=detail)])


def _find_refusal(data: bytes, budget: _EmbeddingBudget) -> str | None:
    if not data:
        return "it is empty"
    if budget.depth >= MAX_DEPTH:
        return f"it is nested more than {MAX_DEPTH} levels deep"
    if budget.n_files >= MAX_FILES:
        return f"the document contains more than {MAX_FILES} files"
    if len(data) > MAX_FILE_BYTES:
        return f"files above {MAX_FILE_BYTES // 2**20} MiB are read as documents only"
    if budget.n_bytes + len(data) > MAX_TOTAL_BYTES:
        return f"the files in the document exceed {MAX_TOTAL_BYTES // 2**20} MiB"
    return None


def _read_file(name: str, data: bytes, media_type: str | None) -> ParsedPart:
    path = cast(Path, MemoryFile(data))
    with declare_charset(media_type):
        detected = detect_media_type(path, name, media_type)
        file_format = FORMAT_BY_TYPE[detected.media_type]
        if file_format.zip_entries:
            archive.check_unpacked_size(path)
        if not file_format.is_paged:
            return file_format.read(path)
        reader = file_format.load_paged_reader()
        pages, _ = reader.inspect_pages(path, _MAX_PAGES)
        return reader.read(path, range(1, pages + 1))


def read_archive(path: Path) -> ParsedPart:
    """Read a ZIP archive: each file in it is a section."""
    part = ParsedPart()
    with archive.open_archive(path) as bundle:
        for entry in bundle.infolist():
            name = PurePosixPath(entry.filename)
            # Folders, and what macOS adds to archives for itself.
            if entry.is_dir() or name.parts[:1] == ("__MACOSX",) or name.name == ".DS_Store":
                continue
            if entry.file_size > MAX_FILE_BYTES:
                reason = f"files above {MAX_FILE_BYTES // 2**20} MiB are read as documents only"
                inner = make_unread_part(entry.filename, None, entry.file_size, reason)
            else:
                with bundle.open(entry) as stream:
                    data = stream.read(MAX_FILE_BYTES + 1)
                inner = read_embedded(entry.filename, data, label="File")
            part.extend(inner)
    return part
