"""What settings a generation was made with beside the others: where its models are served. Kept in the data folder, since addresses and keys enter no event."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from anabranch.settings import Settings
from anabranch.settings_loading import amended

FOLDER = "generations"


def settings_of(settings: Settings, generation: str) -> Settings:
    """Those of this process, as the generation was told to differ. Raises ConfigurationError."""
    sets = sets_of(settings, generation)
    return amended(settings, sets) if sets else settings


def sets_of(settings: Settings, generation: str) -> list[str]:
    path = _path(settings, generation)
    return list(json.loads(path.read_text())) if path.exists() else []


def keep_settings(settings: Settings, generation: str, sets: Sequence[str]) -> None:
    """Readable by this account only: there may be keys among them."""
    path = _path(settings, generation)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(f".{os.getpid()}")
    with os.fdopen(os.open(draft, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "w") as file:
        json.dump(list(sets), file)
    draft.replace(path)


def _path(settings: Settings, generation: str) -> Path:
    return settings.data_dir.resolve() / FOLDER / f"{generation}.json"
