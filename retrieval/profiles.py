"""Load named retrieval profiles from YAML files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import yaml
from pydantic import ValidationError

from schemas.errors import ConfigurationError, InvalidRequest
from schemas.profiles import Profile


class ProfileCatalog:
    """Profiles by name. `default` always exists."""

    def __init__(self, profiles: Mapping[str, Profile]) -> None:
        # A file default.yaml replaces the built-in default.
        self._profiles = {"default": Profile(), **profiles}

    @property
    def names(self) -> list[str]:
        return sorted(self._profiles)

    def get(self, name: str) -> Profile:
        """Raises InvalidRequest that lists the available profiles."""
        if name not in self._profiles:
            raise InvalidRequest(
                f"Unknown profile {name!r}.",
                code="UNKNOWN_PROFILE",
                remedy=f"Available profiles: {', '.join(self.names)}.",
            )
        return self._profiles[name]


def load_profiles(*folders: Path) -> ProfileCatalog:
    """Load every `*.yaml` of the folders, named after its file; later folders override earlier.

    Raises ConfigurationError for a file that is not a valid profile.
    """
    profiles = {}
    for path in (path for folder in folders for path in sorted(folder.glob("*.yaml"))):
        try:
            profiles[path.stem] = Profile.model_validate(
                {"name": path.stem, **(yaml.safe_load(path.read_text(encoding="utf-8")) or {})}
            )
        except (yaml.YAMLError, ValidationError, TypeError) as error:
            raise ConfigurationError(
                f"Invalid profile {path}: {error}.",
                remedy="Compare it with profiles/default.yaml; the reference lists all fields and "
                "bounds.",
            ) from error
    return ProfileCatalog(profiles)
