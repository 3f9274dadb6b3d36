"""Settings that a generation overrides, such as the address of its models.

They are stored in the data folder, not in events, since they may hold addresses and keys.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from anabranch.config.loader import override_settings
from anabranch.config.settings import Settings

OVERRIDES_FOLDER = "generations"


def resolve_generation_settings(settings: Settings, generation: str) -> Settings:
    """Return the settings with the generation's overrides. Raises ConfigurationError."""
    overrides = load_overrides(settings, generation)
    return override_settings(settings, overrides) if overrides else settings


def load_overrides(settings: Settings, generation: str) -> list[str]:
    path = _overrides_path(settings, generation)
    return list(json.loads(path.read_text())) if path.exists() else []


def store_overrides(settings: Settings, generation: str, overrides: Sequence[str]) -> None:
    """Store the overrides with mode 0600, since they may hold keys."""
    path = _overrides_path(settings, generation)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary_path = path.with_suffix(f".{os.getpid()}")
    with os.fdopen(
        os.open(temporary_path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "w"
    ) as file:
        json.dump(list(overrides), file)
    temporary_path.replace(path)


def _overrides_path(settings: Settings, generation: str) -> Path:
    return settings.data_dir.resolve() / OVERRIDES_FOLDER / f"{generation}.json"
