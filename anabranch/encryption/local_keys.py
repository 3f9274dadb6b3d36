"""What a data folder keeps to itself."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from schemas.errors import ConfigurationError


def load_link_key(data_dir: Path) -> bytes:
    """The key that signs links of this data folder."""
    return _load_or_create(data_dir, "link.key")


MASTER_KEY_FILE, NEXT_MASTER_KEY_FILE, OLD_MASTER_KEY_FILE = "master.key", "next-master.key", "old-master.key"


def load_master_key(data_dir: Path, is_current: Callable[[bytes], bool]) -> bytes:
    """The key that wraps the keys of documents: 32 bytes. Whoever loses it has lost the log. `is_current` tells of the next one whether the keystore has it already."""
    next_path = data_dir / NEXT_MASTER_KEY_FILE
    is_rotation_begun = is_current(next_path.read_bytes()) if next_path.exists() else (data_dir / OLD_MASTER_KEY_FILE).exists()
    if is_rotation_begun or not (data_dir / MASTER_KEY_FILE).exists():
        finish_rotation(data_dir)
    return _load_or_create(data_dir, MASTER_KEY_FILE)


def prepare_next_master_key(data_dir: Path, provided_key: bytes | None) -> bytes:
    """The master key to rotate to: the one of an interrupted rotation, else the given one, else a new one. It is on the disk before it wraps anything."""
    key = _load_or_create(data_dir, NEXT_MASTER_KEY_FILE, provided_key)
    if provided_key is not None and key != provided_key:
        raise ConfigurationError(
            f"A rotation to another key was interrupted; that key is in {data_dir / NEXT_MASTER_KEY_FILE}.",
            code="ROTATION_INTERRUPTED",
            remedy="Call `anabranch keys rewrap` without --new-key-file to finish it.",
        )
    fsync_path(data_dir / NEXT_MASTER_KEY_FILE)
    fsync_path(data_dir)
    return key


def finish_rotation(data_dir: Path) -> None:
    """The next master key in place of the present one, which is overwritten. May be repeated after a crash at any step."""
    current_path, next_path, old_path = (data_dir / name for name in (MASTER_KEY_FILE, NEXT_MASTER_KEY_FILE, OLD_MASTER_KEY_FILE))
    if next_path.exists():
        if current_path.exists():
            current_path.replace(old_path)
        next_path.replace(current_path)
        fsync_path(data_dir)
    overwrite_and_delete(old_path)


def fsync_path(path: Path) -> None:
    """Wait until a file or folder is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def overwrite_and_delete(path: Path) -> None:
    """Overwrite a file with zeros, write that to the disk, and delete it. A filesystem that copies on write may keep the old blocks."""
    with suppress(FileNotFoundError):
        with path.open("r+b") as file:
            file.write(bytes(path.stat().st_size))
            file.flush()
            os.fsync(file.fileno())
        path.unlink()


def _load_or_create(data_dir: Path, name: str, provided_key: bytes | None = None) -> bytes:
    """Made once, readable by its owner only. Processes may race for it; the first one's holds."""
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
