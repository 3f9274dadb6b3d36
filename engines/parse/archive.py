"""ZIP containers (DOCX, XLSX, EPUB, …), limited in entries, size and compression ratio."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engines.parse.notices import make_corrupt_error, make_encrypted_error
from schemas.errors import LimitExceeded

MAX_ENTRIES = 20_000
MAX_UNPACKED_BYTES = 1024**3
UNCHECKED_UNPACKED_BYTES = 32 * 1024**2
MAX_COMPRESSION_RATIO = 200
"""Office files rarely exceed a ratio of 50. Not checked below UNCHECKED_UNPACKED_BYTES."""

_CONTAINER_NAMES = ("mimetype", "[Content_Types].xml", "META-INF/MANIFEST.MF")
_CHUNK_BYTES = 1024**2


@contextmanager
def open_archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open a ZIP file whose directory is within the limits.

    Raises UnreadableDocument (CORRUPT_DOCUMENT, ENCRYPTED_DOCUMENT) or LimitExceeded
    (ARCHIVE_BOMB).
    """
    try:
        with zipfile.ZipFile(path) as bundle:
            _check_directory(bundle, path.stat().st_size)
            yield bundle
    # zipfile raises NotImplementedError for unknown compression, RuntimeError for encryption.
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise make_corrupt_error(f"The archive cannot be read: {error}") from error


def check_unpacked_size(path: Path) -> None:
    """Check the limits while unpacking everything, since a directory may lie.

    Raises the errors of `open_archive`.
    """
    with open_archive(path) as bundle:
        total = 0
        for entry in bundle.infolist():
            for size in _iter_unpacked_sizes(bundle, entry):
                total += size
                _check_size(total, path.stat().st_size)


def _iter_unpacked_sizes(bundle: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Iterator[int]:
    # `zipfile` stops at the declared size. Raise it, so that an entry that unpacks to more is
    # noticed.
    declared_size, entry.file_size = entry.file_size, MAX_UNPACKED_BYTES * 2
    try:
        with bundle.open(entry) as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                yield len(chunk)
    finally:
        entry.file_size = declared_size


def _check_directory(bundle: zipfile.ZipFile, packed_bytes: int) -> None:
    entries = bundle.infolist()
    if len(entries) > MAX_ENTRIES:
        raise _make_bomb_error(
            f"The archive has {len(entries):,} entries; {MAX_ENTRIES:,} are allowed."
        )
    if any(entry.flag_bits & 1 for entry in entries):
        raise make_encrypted_error("archive")
    _check_size(sum(entry.file_size for entry in entries), packed_bytes)


def _check_size(unpacked_bytes: int, packed_bytes: int) -> None:
    if unpacked_bytes > MAX_UNPACKED_BYTES:
        raise _make_bomb_error(
            f"The archive unpacks to more than {MAX_UNPACKED_BYTES // 2**20} MiB."
        )
    if (
        unpacked_bytes > UNCHECKED_UNPACKED_BYTES
        and unpacked_bytes > MAX_COMPRESSION_RATIO * packed_bytes
    ):
        raise _make_bomb_error(
            f"The archive unpacks to more than {MAX_COMPRESSION_RATIO} times its size."
        )


def _make_bomb_error(detail: str) -> LimitExceeded:
    return LimitExceeded(
        detail,
        code="ARCHIVE_BOMB",
        remedy="Save the document without embedded media, or split it, and send that.",
    )


def is_plain_archive(names: set[str]) -> bool:
    """Return whether a ZIP file is an archive of files rather than a document of some program."""
    return bool(names) and not names.intersection(_CONTAINER_NAMES)
