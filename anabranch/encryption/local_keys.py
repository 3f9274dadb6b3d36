"""Keys stored in the data folder: the link key and the master key."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from schemas.errors import ConfigurationError


def load_link_key(data_dir: Path) -> bytes:
    """Load or create the key that signs links."""
    return _load_or_create(data_dir, "link.key")


MASTER_KEY_FILE, NEXT_MASTER_KEY_FILE, OLD_MASTER_KEY_FILE = (
    "master.key",
    "next-master.key",
    "old-master.key",
)


def load_master_key(data_dir: Path, is_current: Callable[[bytes], bool]) -> bytes:
    """Load or create the master key (32 bytes), and finish an interrupted rotation.

    `is_current` returns whether the keystore uses the given key already. Without the master key,
    the log is unreadable.
    """
    next_path = data_dir / NEXT_MASTER_KEY_FILE
    is_rotation_begun = (
        is_current(next_path.read_bytes())
        if next_path.exists()
        else (data_dir / OLD_MASTER_KEY_FILE).exists()
    )
    if is_rotation_begun or not (data_dir / MASTER_KEY_FILE).exists():
        finish_rotation(data_dir)
    return _load_or_create(data_dir, MASTER_KEY_FILE)


def prepare_next_master_key(data_dir: Path, provided_key: bytes | None) -> bytes:
    """Return the next master key: that of an interrupted rotation, else the provided one, else a
    new one.

    The key is on disk before it wraps anything. Raises ConfigurationError if the provided key
    differs from that of an interrupted rotation.
    """
    key = _load_or_create(data_dir, NEXT_MASTER_KEY_FILE, provided_key)
    if provided_key is not None and key != provided_key:
        raise ConfigurationError(
            f"A rotation to another key was interrupted; that key is in {data_dir / NEXT_MASTER_KEY_FILE}.",
            code="ROTATION_INTERRUPTED",
            remedy="Run `anabranch keys rewrap` without --new-key-file to finish it.",
        )
    fsync_path(data_dir / NEXT_MASTER_KEY_FILE)
    fsync_path(data_dir)
    return key


def finish_rotation(data_dir: Path) -> None:
    """Replace the current master key by the next one and overwrite the old one.

    Safe to repeat after a crash at any step.
    """
    current_path, next_path, old_path = (
        data_dir / name for name in (MASTER_KEY_FILE, NEXT_MASTER_KEY_FILE, OLD_MASTER_KEY_FILE)
    )
    if next_path.exists():
        if current_path.exists():
            current_path.replace(old_path)
        next_path.replace(current_path)
        fsync_path(data_dir)
    overwrite_and_delete(old_path)


def fsync_path(path: Path) -> None:
    """Wait until a file or folder is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def overwrite_and_delete(path: Path) -> None:
    """Overwrite a file with zeros, sync and delete it. A copy-on-write filesystem may keep the old
    blocks.
    """
    with suppress(FileNotFoundError):
        with path.open("r+b") as file:
            file.write(bytes(path.stat().st_size))
            file.flush()
            os.fsync(file.fileno())
        path.unlink()


def _load_or_create(data_dir: Path, name: str, provided_key: bytes | None = None) -> bytes:
    """Read the key file, or create it with mode 0600."""
    # os.link fails if another process created the file first; all processes then read that one.
    path = data_dir / name
    data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    with suppress(FileExistsError):
        temporary_path = data_dir / f"{name}.{os.getpid()}"
        temporary_path.touch(mode=0o600)
        temporary_path.write_bytes(provided_key or secrets.token_bytes(32))
        try:
            os.link(temporary_path, path)
        finally:
            temporary_path.unlink()
    return path.read_bytes()
