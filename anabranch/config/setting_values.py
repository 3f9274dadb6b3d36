"""Report the settings in effect, without secrets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anabranch.config.index_config import find_reindex_stage
from anabranch.config.loader import flatten, list_setting_names, to_environment_name
from anabranch.config.settings import Settings
from schemas.setting_values import SettingValue
from schemas.urls import redact_urls


def list_setting_values(settings: Settings) -> list[SettingValue]:
    """Return all settings with their origin. Secrets and credentials in URLs are masked."""
    # JSON mode masks SecretStr.
    values = dict(flatten(settings.model_dump(mode="json")))
    return [
        SettingValue.model_validate(
            {
                "key": key,
                "value": _redact(values.get(key)),
                "origin": settings.origins.get(key, "default"),
                "environment": to_environment_name(key),
                "reindex_from": find_reindex_stage(key),
            }
        )
        for key in list_setting_names()
    ]


def _redact(value: Any) -> Any:
    match value:
        case str():
            return redact_urls(value)
        case Mapping():
            return {name: _redact(item) for name, item in value.items()}
        case list():
            return [_redact(item) for item in value]
    return value
