"""What the settings say about the index, and whether the live generation agrees."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from anabranch.config.settings import ModelSettings, Settings
from schemas.errors import ConfigurationError
from schemas.generations import (
    ChunkConfig,
    EmbedConfig,
    ExtractConfig,
    IndexConfig,
    OcrConfig,
)

if TYPE_CHECKING:
    pass

INDEX_SECTIONS = ("chat", "chunk", "embed", "extract", "ocr")


def build_index_config(settings: Settings, live: IndexConfig | None = None) -> IndexConfig:
    """The configuration by the settings; fingerprints are still empty. What they leave open stays as it is in the index that is there, `live`."""
    return IndexConfig(
        ocr=OcrConfig(engine="openai", model=require_model(settings.ocr, "ocr")) if settings.ocr.base_url else OcrConfig(),
        chunk=ChunkConfig(**settings.chunk.model_dump()),
        extract=_build_extract_config(settings, live),
        embed=_build_embed_config(settings),
    )


def check_index_settings(assignments: Iterable[str]) -> None:
    """Raises ConfigurationError for an assignment that no index is made with."""
    for assignment in assignments:
        if assignment.partition(".")[0].strip() not in INDEX_SECTIONS:
            raise ConfigurationError(
                f"--set {assignment} does not change an index.",
                code="NOT_AN_INDEX_SETTING",
                remedy=f"Settings of an index begin with {', '.join(f'{section}.' for section in INDEX_SECTIONS)}; set others where the server starts.",
            )


def _build_extract_config(settings: Settings, live: IndexConfig | None) -> ExtractConfig:
    """A chat model that is set later does not change who extracts."""
    explicit = settings.extract.model_dump(exclude_none=True)
    if not explicit and live is not None:
        return ExtractConfig(engine=live.extract.engine, model=live.extract.model)
    if settings.extract.engine == "rules" or not (explicit or settings.chat.base_url):
        return ExtractConfig()
    return ExtractConfig(engine="openai", model=require_model(settings.resolve_extraction_server(), "extract" if explicit else "chat"))


def _build_embed_config(settings: Settings) -> EmbedConfig:
    embed = settings.embed
    if not embed.base_url:
        return EmbedConfig(state_dimension=embed.state_dimension)
    if embed.dimension is None:
        raise ConfigurationError("embed.base_url is set, embed.dimension is not", remedy="Set ANABRANCH_EMBED__DIMENSION to the length of the model's vectors.")
    return EmbedConfig(engine="openai", model=require_model(embed, "embed"), dimension=embed.dimension, state_dimension=0)


def require_model(model: ModelSettings, section: str) -> str:
    """Its name. Raises ConfigurationError where the settings give none."""
    if not model.model:
        raise ConfigurationError(f"{section}.base_url is set, {section}.model is not", remedy=f"Set ANABRANCH_{section.upper()}__MODEL.")
    return model.model
