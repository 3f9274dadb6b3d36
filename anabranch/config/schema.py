"""JSON Schemas of the settings and of a profile."""

from __future__ import annotations

from typing import Any

from anabranch.config.settings import Settings
from schemas.profiles import Profile


def build_config_schema() -> dict[str, Any]:
    return {"settings": Settings.model_json_schema(), "profile": Profile.model_json_schema()}
