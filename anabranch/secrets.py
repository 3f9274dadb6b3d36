"""What a data folder keeps to itself."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path


def link_secret(data_dir: Path) -> bytes:
    """The key that signs links of this data folder."""
    return _kept(data_dir, "link.key")


def master_key(data_dir: Path) -> bytes:
    """The key that wraps the keys of documents: 32 bytes. Whoever loses it has lost the log."""
    return _kept(data_dir, "master.key")


def overwrite(path: Path) -> None:
    """Overwrite a file with zeros, write that to the disk, and delete it. A filesystem that copies on write may keep the old blocks."""
    with suppress(FileNotFoundError):
        with path.open("r+b") as file:
            file.write(bytes(path.stat().st_size))
            file.flush()
            os.fsync(file.fileno())
        path.unlink()


def _kept(data_dir: Path, name: str) -> bytes:
    """Made once, readable by its owner only. Processes may race for it; the first one's holds."""
    path = data_dir / name
    data_dir.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        draft = data_dir / f"{name}.{os.getpid()}"
        draft.touch(mode=0o600)
        draft.write_bytes(secrets.token_bytes(32))
        try:
            os.link(draft, path)
        finally:
            draft.unlink()
    return path.read_bytes()
