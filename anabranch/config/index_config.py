"""Index configuration that follows from the settings, and the settings in effect."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from anabranch.config.loader import flatten, list_setting_names, to_environment_name
from anabranch.config.profiles import load_all_profiles
from anabranch.config.settings import ModelSettings, Settings
from schemas.errors import ConfigurationError, InvalidRequest
from schemas.generations import (
    ChunkConfig,
    EmbedConfig,
    ExtractConfig,
    IndexConfig,
    LexicalConfig,
    OcrConfig,
)
from schemas.profiles import SettingValue
from schemas.urls import redact_urls

CALL_SETTINGS = {
    "timeout_s",
    "attempts",
    "total_timeout_s",
    "breaker_failures",
    "breaker_open_s",
    "parallel",
}
SERVER_SETTINGS = CALL_SETTINGS | {"api_key", "kind", "api_version", "batch"}
"""How a model server is called, which does not shape what it returns."""
REINDEX_STAGES = {
    "ocr": "transcribe",
    "chunk": "chunk",
    "lexical": "chunk",
    "extract": "extract",
    "embed": "embed",
    "hnsw": "embed",
}
"""First stage whose output a settings section shapes."""
INDEX_SECTIONS = ("chat", "chunk", "embed", "extract", "hnsw", "lexical", "ocr")


def build_index_config(settings: Settings, live: IndexConfig | None = None) -> IndexConfig:
    """Build the configuration, without fingerprints.

    Settings that are unset keep their value of the `live` index.
    """
    return IndexConfig(
        ocr=OcrConfig(engine="openai", model=require_model(settings.ocr, "ocr"))
        if settings.ocr.base_url
        else OcrConfig(),
        chunk=_build_chunk_config(settings),
        lexical=LexicalConfig(**settings.lexical.model_dump()),
        hnsw=settings.hnsw,
        extract=_build_extract_config(settings, live),
        embed=_build_embed_config(settings),
    )


def find_reindex_stage(key: str) -> str | None:
    """Return the stage from which documents are processed again after the setting changed.

    None: it does not shape the index configuration.
    """
    section, _, name = key.partition(".")
    return None if name in SERVER_SETTINGS else REINDEX_STAGES.get(section)


def check_index_settings(assignments: Iterable[str]) -> None:
    """Raise ConfigurationError for a setting that does not shape the index."""
    for assignment in assignments:
        if assignment.partition(".")[0].strip() not in INDEX_SECTIONS:
            raise ConfigurationError(
                f"--set {assignment} does not change an index.",
                code="NOT_AN_INDEX_SETTING",
                remedy="Use settings that begin with "
                f"{', '.join(f'{section}.' for section in INDEX_SECTIONS)}; set others where the "
                "server starts.",
            )


def _build_chunk_config(settings: Settings) -> ChunkConfig:
    explicit = settings.chunk.model_dump(exclude={"profile"}, exclude_defaults=True)
    profile = settings.chunk.profile
    try:
        chosen = load_all_profiles(settings).get_chunk_sizes(profile)
    except InvalidRequest as error:
        raise ConfigurationError(
            f"chunk.profile: {error.detail}", code=error.code, remedy=error.remedy
        ) from error
    return ChunkConfig(**{**chosen, **explicit})


def _build_extract_config(settings: Settings, live: IndexConfig | None) -> ExtractConfig:
    # How a server is called does not say which one extracts.
    explicit = settings.extract.model_dump(exclude_none=True, exclude=CALL_SETTINGS)
    if not explicit and live is not None:
        # A chat model that is configured later must not change the extraction of an existing index.
        return ExtractConfig(engine=live.extract.engine, model=live.extract.model)
    if settings.extract.engine == "rules" or not (explicit or settings.chat.base_url):
        return ExtractConfig()
    return ExtractConfig(
        engine="openai",
        model=require_model(
            settings.resolve_chat_server("extract"), "extract" if explicit else "chat"
        ),
    )


def _build_embed_config(settings: Settings) -> EmbedConfig:
    embed = settings.embed
    if not embed.base_url and embed.model in (None, EmbedConfig().model):
        return EmbedConfig(state_dimension=embed.state_dimension)
    if embed.dimension is None:
        raise ConfigurationError(
            f"embed.{'base_url' if embed.base_url else 'model'} is set, but embed.dimension is "
            "not.",
            remedy="Set ANABRANCH_EMBED__DIMENSION to the length of the model's vectors.",
        )
    return EmbedConfig(
        engine=embed.api if embed.base_url else "named",
        model=require_model(embed, "embed"),
        dimension=embed.dimension,
        # Of other models than ours there are vectors, but no token states.
        state_dimension=0,
    )


def require_model(model: ModelSettings, section: str) -> str:
    """Return the model's name. Raises ConfigurationError if it is not set."""
    if not model.model:
        raise ConfigurationError(
            f"{section}.base_url is set, but {section}.model is not.",
            remedy=f"Set ANABRANCH_{section.upper()}__MODEL.",
        )
    return model.model


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
