"""What a data folder keeps to itself."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from schemas.errors import ConfigurationError


def link_secret(data_dir: Path) -> bytes:
    """The key that signs links of this data folder."""
    return _kept(data_dir, "link.key")


MASTER, NEXT, OLD = "master.key", "next-master.key", "old-master.key"


def master_key(data_dir: Path, is_current: Callable[[bytes], bool]) -> bytes:
    """The key that wraps the keys of documents: 32 bytes. Whoever loses it has lost the log. `is_current` tells of the next one whether the keystore has it already."""
    upcoming = data_dir / NEXT
    begun = is_current(upcoming.read_bytes()) if upcoming.exists() else (data_dir / OLD).exists()
    if begun or not (data_dir / MASTER).exists():
        finish_rotation(data_dir)
    return _kept(data_dir, MASTER)


def next_master_key(data_dir: Path, given: bytes | None) -> bytes:
    """The master key to rotate to: the one of an interrupted rotation, else the given one, else a new one. It is on the disk before it wraps anything."""
    key = _kept(data_dir, NEXT, given)
    if given is not None and key != given:
        raise ConfigurationError(
            f"A rotation to another key was interrupted; that key is in {data_dir / NEXT}.",
            code="ROTATION_INTERRUPTED",
            remedy="Call `anabranch keys rewrap` without --new-key-file to finish it.",
        )
    sync(data_dir / NEXT)
    sync(data_dir)
    return key


def finish_rotation(data_dir: Path) -> None:
    """The next master key in place of the present one, which is overwritten. May be repeated after a crash at any step."""
    current, upcoming, old = (data_dir / name for name in (MASTER, NEXT, OLD))
    if upcoming.exists():
        if current.exists():
            current.replace(old)
        upcoming.replace(current)
        sync(data_dir)
    overwrite(old)


def sync(path: Path) -> None:
    """Wait until a file or folder is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def overwrite(path: Path) -> None:
    """Overwrite a file with zeros, write that to the disk, and delete it. A filesystem that copies on write may keep the old blocks."""
    with suppress(FileNotFoundError):
        with path.open("r+b") as file:
            file.write(bytes(path.stat().st_size))
            file.flush()
            os.fsync(file.fileno())
        path.unlink()


def _kept(data_dir: Path, name: str, given: bytes | None = None) -> bytes:
    """Made once, readable by its owner only. Processes may race for it; the first one's holds."""
    path = data_dir / name
    data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    with suppress(FileExistsError):
        draft = data_dir / f"{name}.{os.getpid()}"
        draft.touch(mode=0o600)
        draft.write_bytes(given or secrets.token_bytes(32))
        try:
            os.link(draft, path)
        finally:
            draft.unlink()
    return path.read_bytes()
