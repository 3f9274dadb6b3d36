"""Profiles: those that are shipped, and those of the data folder; and their JSON Schemas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from anabranch.config.settings import Settings
from retrieval.profiles import ProfileCatalog, load_profiles
from schemas.errors import ConfigurationError, InvalidRequest
from schemas.profiles import FILE_MODELS

PROFILE_FOLDERS = (Path(__file__).parents[1] / "_profiles", Path(__file__).parents[2] / "profiles")
"""Location in the wheel, and in a source checkout."""


def load_all_profiles(settings: Settings) -> ProfileCatalog:
    """Load the shipped profiles and those of the data folder, which take precedence."""
    shipped = next((folder for folder in PROFILE_FOLDERS if folder.is_dir()), PROFILE_FOLDERS[-1])
    own_folder = settings.profiles_dir or settings.data_dir / "profiles"
    return load_profiles(shipped, own_folder)


def read_profiles_again(settings: Settings) -> ProfileCatalog:
    """Load all profiles. Raises InvalidRequest for an invalid file."""
    try:
        return load_all_profiles(settings)
    except ConfigurationError as error:
        raise InvalidRequest(
            f"{error.detail} The previous profiles stay in use.",
            code="INVALID_PROFILE",
            remedy=error.remedy,
        ) from error


def build_config_schema() -> dict[str, Any]:
    schemas = {name: model.model_json_schema() for name, model in FILE_MODELS.items()}
    return {
        "settings": Settings.model_json_schema(),
        "profile": schemas["workflow"],
        "profiles": schemas,
    }
