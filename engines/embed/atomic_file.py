"""Atomic writing of files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4


def write_atomically(target: Path, write: Callable[[Path], object]) -> None:
    """Write a temporary file next to `target`, sync it and rename it.

    If two processes race, the last one wins.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary_path = target.with_name(f".{uuid4().hex}.{target.name}")
    try:
        write(temporary_path)
        with temporary_path.open("rb") as file:
            os.fsync(file.fileno())
        temporary_path.replace(target)
    finally:
        temporary_path.unlink(missing_ok=True)
