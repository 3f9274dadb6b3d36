"""Files that are made once and then only read."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4


def write_atomically(target: Path, write: Callable[[Path], object]) -> None:
    """`write` a draft beside `target` and give it its name once it is on the disk: nobody ever sees half of it, and of two processes that race the last one wins."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary_path = target.with_name(f".{uuid4().hex}.{target.name}")
    try:
        write(temporary_path)
        with temporary_path.open("rb") as file:
            os.fsync(file.fileno())
        temporary_path.replace(target)
    finally:
        temporary_path.unlink(missing_ok=True)
