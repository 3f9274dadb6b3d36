"""Approvals that the owner of a data folder gives from the command line; a request over HTTP cannot give them.

Whoever can write to the data folder, which is 0700, owns the server: folders to watch and settings with addresses or keys are approved there. A caller of
the API, with whatever credential, adds none.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from schemas.errors import InvalidRequest

FILE = "approvals.json"
Kind = Literal["folders", "settings"]
OPEN_SETTINGS = frozenset(
    {"embed.model", "embed.dimension", "embed.state_dimension", "extract.engine", "extract.model", "chat.model", "rerank.model", "ocr.model"}
)
OPEN_SECTION = "chunk."


def approve(data_dir: Path, kind: Kind, values: Iterable[str]) -> None:
    """Add to the approved values of the data folder."""
    data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    known = _read(data_dir)
    merged = {**known, kind: list(dict.fromkeys([*known.get(kind, []), *values]))}
    path = data_dir / FILE
    draft = path.with_name(f".{FILE}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    draft.touch(mode=0o600)
    draft.write_text(json.dumps(merged, indent=1) + "\n")
    draft.replace(path)


def approved(data_dir: Path, kind: Kind) -> list[str]:
    return _read(data_dir).get(kind, [])


def closed_settings(sets: Iterable[str]) -> list[str]:
    """Return the settings that need approval: all but `chunk.*` and model names."""
    return [one for one in sets if not (key := one.partition("=")[0].strip()).startswith(OPEN_SECTION) and key not in OPEN_SETTINGS]


def check_settings(data_dir: Path, sets: Sequence[str]) -> None:
    """Raises InvalidRequest with code SETTING_NOT_APPROVED. A value is not repeated: it may be a key."""
    if refused := sorted({one.partition("=")[0].strip() for one in set(closed_settings(sets)) - set(approved(data_dir, "settings"))}):
        raise InvalidRequest(
            f"Over HTTP, {', '.join(refused)} cannot be set.",
            code="SETTING_NOT_APPROVED",
            remedy="Run `anabranch reindex --set …` where the server's data folder is (--data, not --server).",
        )


def allowed_folders(configured: Iterable[str], data_dir: Path) -> list[Path]:
    """Folders that sources may watch, with everything below them."""
    return [Path(folder).resolve() for folder in (*configured, *approved(data_dir, "folders"))]


def _read(data_dir: Path) -> dict[str, list[str]]:
    try:
        return dict(json.loads((data_dir / FILE).read_text()))
    except FileNotFoundError:
        return {}
