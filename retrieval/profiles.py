"""Named profiles, read from YAML files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import yaml
from pydantic import ValidationError

from schemas.errors import ConfigurationError, InvalidRequest
from schemas.profiles import Profile


class ProfileCatalog:
    """Profiles by name. There is always a `default`."""

    def __init__(self, profiles: Mapping[str, Profile]) -> None:
        self._profiles = {"default": Profile(), **profiles}

    @property
    def names(self) -> list[str]:
        return sorted(self._profiles)

    def get(self, name: str) -> Profile:
        """Raises InvalidRequest, which names those there are."""
        if name not in self._profiles:
            raise InvalidRequest(f"There is no profile named {name!r}.", code="UNKNOWN_PROFILE", remedy=f"Use one of: {', '.join(self.names)}.")
        return self._profiles[name]


def load_profiles(*folders: Path) -> ProfileCatalog:
    """Every `*.yaml` of the folders, named after its file; those of a later folder win. Raises ConfigurationError for a file that does not hold a profile."""
    return ProfileCatalog({path.stem: _load_profile(path) for folder in folders for path in sorted(folder.glob("*.yaml"))})


def _load_profile(path: Path) -> Profile:
    try:
        return Profile.model_validate({"name": path.stem, **(yaml.safe_load(path.read_text(encoding="utf-8")) or {})})
    except (yaml.YAMLError, ValidationError, TypeError) as error:
        raise ConfigurationError(
            f"{path} is no profile: {error}", remedy="Compare it with profiles/default.yaml; fields and bounds are in the reference."
        ) from error
