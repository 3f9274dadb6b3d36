"""What the settings say about the index, and whether the live generation agrees."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from anabranch.config.settings import ModelSettings, Settings
from schemas.errors import ConfigurationError, GenerationMismatch
from schemas.generations import (
    UPSTREAM_STAGES,
    ChunkConfig,
    EmbedConfig,
    ExtractConfig,
    Generation,
    IndexConfig,
    OcrConfig,
    ParseConfig,
    compute_stage_fingerprint,
)

if TYPE_CHECKING:
    from services.engine_set import Engines

INDEX_SECTIONS = ("chat", "chunk", "embed", "extract", "ocr")
OUTDATED_REMEDIES = {
    "live": "`anabranch reindex` makes an index by this version, what waits included; `anabranch generations promote` lets that one answer. Until then {} goes on answering.",
    "standby": "`anabranch generations drop {}` when it is no longer needed.",
    "building": "`anabranch generations drop {}`, and `anabranch reindex` again; or run a worker of the version that began it.",
}
"""By the state of a generation that this program cannot go on with."""


def build_index_config(settings: Settings, live: IndexConfig | None = None) -> IndexConfig:
    """The configuration by the settings; fingerprints are still empty. What they leave open stays as it is in the index that is there, `live`."""
    return IndexConfig(
        ocr=OcrConfig(engine="openai", model=require_model(settings.ocr, "ocr")) if settings.ocr.base_url else OcrConfig(),
        chunk=ChunkConfig(**settings.chunk.model_dump()),
        extract=_build_extract_config(settings, live),
        embed=_build_embed_config(settings),
    )


def add_engine_fingerprints(configured: IndexConfig, engines: Engines) -> IndexConfig:
    """With the fingerprints of the engines that were built by it (or handed in)."""
    embedder = engines.embedder
    embed = EmbedConfig(
        engine=configured.embed.engine,
        model=embedder.model,
        dimension=embedder.dimension,
        state_dimension=embedder.state_dimension,
        fingerprint=embedder.fingerprint,
    )
    return configured.model_copy(
        update={
            "parse": ParseConfig(fingerprint=engines.parser.fingerprint),
            "chunk": configured.chunk.model_copy(update={"fingerprint": engines.chunker.fingerprint}),
            "extract": configured.extract.model_copy(update={"fingerprint": engines.extractor.fingerprint}),
            "embed": embed,
        }
    )


def check_config_matches(configured: IndexConfig, live: IndexConfig, generation: str) -> None:
    """Raises GenerationMismatch that names what differs. What the program itself does otherwise is no setting: see `outdated`."""
    differences = list(_describe_differences(configured.model_dump(), live.model_dump()))
    if differences:
        raise GenerationMismatch(f"generation {generation} was built with another configuration: {'; '.join(differences)}")


def diff_settings(live: IndexConfig, configured: IndexConfig) -> dict[str, dict[str, object]]:
    """Setting → `from` and `to`, of those in which the two differ."""
    live_sections, configured_sections = live.model_dump(), configured.model_dump()
    return {
        f"{section}.{key}": {"from": live_sections[section].get(key), "to": value}
        for section, values in configured_sections.items()
        for key, value in values.items()
        if key != "fingerprint" and value != live_sections[section].get(key)
    }


def check_index_settings(assignments: Iterable[str]) -> None:
    """Raises ConfigurationError for an assignment that no index is made with."""
    for assignment in assignments:
        if assignment.partition(".")[0].strip() not in INDEX_SECTIONS:
            raise ConfigurationError(
                f"--set {assignment} does not change an index.",
                code="NOT_AN_INDEX_SETTING",
                remedy=f"Settings of an index begin with {', '.join(f'{section}.' for section in INDEX_SECTIONS)}; set others where the server starts.",
            )


def find_outdated_stages(generation: Generation, current_config: IndexConfig, versions: dict[str, int]) -> list[str]:
    """Stages whose facts another version of this program made, and this one would make otherwise; `own` has the fingerprints of this program's engines.
    Stages that only follow from them are not named: with what they read they do the same as ever."""
    upstream_fingerprints = {stage: generation.how.get(previous_stage) if previous_stage else None for stage, previous_stage in UPSTREAM_STAGES.items()}
    return [
        stage
        for stage in UPSTREAM_STAGES
        if compute_stage_fingerprint(stage, current_config, versions[stage], upstream_fingerprints[stage]) != generation.how.get(stage)
    ]


def make_outdated_error(generation: Generation, stages: Sequence[str]) -> GenerationMismatch:
    consequence = "what comes new waits there, and is not searchable"
    return GenerationMismatch(
        f"{', '.join(stages)} of generation {generation.name} is the work of another version of this program; {consequence if generation.state == 'live' else 'it waits'}",
        code="GENERATION_OUTDATED",
        remedy=OUTDATED_REMEDIES.get(generation.state, OUTDATED_REMEDIES["live"]).format(generation.name),
    )


def _describe_differences(configured: dict[str, dict[str, object]], live: dict[str, dict[str, object]]) -> list[str]:
    return [
        f"{section}.{key} is {values[key]!r} in the settings, {live[section].get(key)!r} in the index"
        for section, values in configured.items()
        for key in values
        if key != "fingerprint" and values[key] != live[section].get(key)
    ]


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
