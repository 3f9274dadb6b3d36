"""Key file: a random share of each document's key, in a slot that an erasure overwrites.

Postgres never overwrites: an erased row stays in its files and its write-ahead log for a while. So
a document's key is wrapped with the master key *and* a share in this file, outside the database,
where it can be overwritten in place. Without the share, the wrapped key cannot be unwrapped.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from uuid import UUID, uuid4

from anabranch.encryption.local_keys import fsync_path
from schemas.errors import ConfigurationError

SHARE_BYTES = 32
BLOCK_SLOTS = 256
"""Shares written and synced at once, so that creating a key rarely waits for the disk.

A killed process wastes at most its block of 8 KiB.
"""
MAGIC = b"anabranch shares"
HEADER_BYTES = SHARE_BYTES
EMPTY_SHARE = bytes(SHARE_BYTES)


class KeyFile:
    """Shares by slot number, in a file of mode 0600.

    Processes of one machine may share it; slots are never reused.
    """

    def __init__(self, path: Path) -> None:
        """Open or create the file.

        Raises ConfigurationError with code WRONG_KEY_FILE for a file of another format.
        """
        self.path = path
        self._unused: list[tuple[int, bytes]] = []
        self._mutex = Lock()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with self._lock_file():
            if os.fstat(self._file).st_size < HEADER_BYTES:
                os.pwrite(self._file, MAGIC + uuid4().bytes, 0)
                os.fsync(self._file)
                fsync_path(path.parent)
        header = os.pread(self._file, HEADER_BYTES, 0)
        if header[: len(MAGIC)] != MAGIC:
            raise ConfigurationError(
                f"{path} is not a key file.",
                code="WRONG_KEY_FILE",
                remedy="Restore the key file from its backup.",
            )
        self.id = UUID(bytes=header[len(MAGIC) :])

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __del__(self) -> None:
        self.close()

    def allocate(self, count: int) -> list[tuple[int, bytes]]:
        """Return unused slots with their shares, which are on disk.

        Blocks on a sync if the block is used up.
        """
        with self._mutex:
            while len(self._unused) < count:
                self._unused += self._allocate_block()
            allocated, self._unused = self._unused[:count], self._unused[count:]
            return allocated

    def release(self, unused: Iterable[tuple[int, bytes]]) -> None:
        """Return allocated slots that no key refers to."""
        with self._mutex:
            self._unused += unused

    def read(self, slot: int) -> bytes | None:
        """Return the share, or None if it was overwritten or the file ends before it."""
        share = os.pread(self._file, SHARE_BYTES, _slot_offset(slot))
        return share if len(share) == SHARE_BYTES and share != EMPTY_SHARE else None

    def overwrite(self, slots: Iterable[int]) -> int:
        """Overwrite the slots with zeros and wait for the disk.

        Returns how many were not empty yet. Idempotent.
        """
        filled = [slot for slot in slots if self.read(slot) is not None]
        for slot in filled:
            os.pwrite(self._file, EMPTY_SHARE, _slot_offset(slot))
        if filled:
            os.fsync(self._file)
        return len(filled)

    def skip_to(self, slot: int) -> None:
        """Reserve all slots up to this one: if the file is an older copy, newer keys refer to them."""
        with self._lock_file():
            if self._find_next_slot() <= slot:
                os.ftruncate(self._file, _slot_offset(slot + 1))
                os.fsync(self._file)

    def _allocate_block(self) -> list[tuple[int, bytes]]:
        shares = [secrets.token_bytes(SHARE_BYTES) for _ in range(BLOCK_SLOTS)]
        with self._lock_file():
            first = self._find_next_slot()
            os.pwrite(self._file, b"".join(shares), _slot_offset(first))
            os.fsync(self._file)
        return list(enumerate(shares, first))

    def _find_next_slot(self) -> int:
        # Rounded up, so that a slot that a crash left half-written is skipped.
        return -(-(os.fstat(self._file).st_size - HEADER_BYTES) // SHARE_BYTES)

    @contextmanager
    def _lock_file(self) -> Iterator[None]:
        # flock belongs to the open file description, which threads of this process share: open
        # another one.
        descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _slot_offset(slot: int) -> int:
    return HEADER_BYTES + slot * SHARE_BYTES
