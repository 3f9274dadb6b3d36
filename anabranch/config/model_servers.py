"""Settings of model servers and of local engines."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from anabranch.config.overrides import watch_nothing
from anabranch.config.settings import ModelSettings, Settings
from engines.resilience import ServerInstrumentation, ServerSettings
from schemas.errors import ConfigurationError

WatchFor = Callable[[str], ServerInstrumentation]


def build_server_settings(
    model: ModelSettings, section: str, name: str, watch: WatchFor = watch_nothing
) -> ServerSettings:
    """Build the settings of the server that serves model `name`. Raises ConfigurationError if `base_url` is not set."""
    if not model.base_url:
        remedy = f"Set ANABRANCH_{section.upper()}__BASE_URL."
        raise ConfigurationError(
            f"The index was built with a model server for {section}, but {section}.base_url is not set.",
            remedy=remedy,
        )
    key = model.api_key.get_secret_value() if model.api_key else ""
    return ServerSettings(
        model.base_url,
        name,
        key,
        model.kind or "openai",
        model.api_version,
        instrumentation=watch(section),
    )


def resolve_models_folder(settings: Settings) -> Path:
    """Return the folder for files that engines compute once and reuse."""
    return settings.data_dir.resolve() / "models"


def resolve_thread_count(settings: Settings) -> int:
    return settings.worker.threads or os.cpu_count() or 1


def build_unknown_engine_error(section: str, engine: str) -> ConfigurationError:
    return ConfigurationError(
        f"This version does not support {section}.engine {engine!r}.", remedy="Upgrade Anabranch."
    )
