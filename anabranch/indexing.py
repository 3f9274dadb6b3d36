"""What the settings say about the index, and whether the live generation agrees."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from anabranch.settings import ModelSettings, Settings
from schemas.errors import ConfigurationError, GenerationMismatch
from schemas.generations import CHAIN, ChunkConfig, EmbedConfig, ExtractConfig, Generation, IndexConfig, OcrConfig, ParseConfig, stage_fingerprint

if TYPE_CHECKING:
    from anabranch.composition.engines import Engines

INDEX_SECTIONS = ("chat", "chunk", "embed", "extract", "ocr")
WAYS_ON = {
    "live": "`anabranch reindex` makes an index by this version, what waits included; `anabranch generations promote` lets that one answer. Until then {} goes on answering.",
    "standby": "`anabranch generations drop {}` when it is no longer needed.",
    "building": "`anabranch generations drop {}`, and `anabranch reindex` again; or run a worker of the version that began it.",
}
"""By the state of a generation that this program cannot go on with."""


def wanted_config(settings: Settings, live: IndexConfig | None = None) -> IndexConfig:
    """The configuration by the settings; fingerprints are still empty. What they leave open stays as it is in the index that is there, `live`."""
    return IndexConfig(
        ocr=OcrConfig(engine="openai", model=model_of(settings.ocr, "ocr")) if settings.ocr.base_url else OcrConfig(),
        chunk=ChunkConfig(**settings.chunk.model_dump()),
        extract=_extract(settings, live),
        embed=_embed(settings),
    )


def index_config(wanted: IndexConfig, engines: Engines) -> IndexConfig:
    """With the fingerprints of the engines that were built by it (or handed in)."""
    embedder = engines.embedder
    embed = EmbedConfig(
        engine=wanted.embed.engine,
        model=embedder.model,
        dimension=embedder.dimension,
        state_dimension=embedder.state_dimension,
        fingerprint=embedder.fingerprint,
    )
    return wanted.model_copy(
        update={
            "parse": ParseConfig(fingerprint=engines.parser.fingerprint),
            "chunk": wanted.chunk.model_copy(update={"fingerprint": engines.chunker.fingerprint}),
            "extract": wanted.extract.model_copy(update={"fingerprint": engines.extractor.fingerprint}),
            "embed": embed,
        }
    )


def check_same(wanted: IndexConfig, live: IndexConfig, generation: str) -> None:
    """Raises GenerationMismatch that names what differs. What the program itself does otherwise is no setting: see `outdated`."""
    differences = list(_differences(wanted.model_dump(), live.model_dump()))
    if differences:
        raise GenerationMismatch(f"generation {generation} was built with another configuration: {'; '.join(differences)}")


def changed_settings(live: IndexConfig, wanted: IndexConfig) -> dict[str, dict[str, object]]:
    """Setting → `from` and `to`, of those in which the two differ."""
    before, after = live.model_dump(), wanted.model_dump()
    return {
        f"{section}.{key}": {"from": before[section].get(key), "to": value}
        for section, values in after.items()
        for key, value in values.items()
        if key != "fingerprint" and value != before[section].get(key)
    }


def check_index_settings(sets: Iterable[str]) -> None:
    """Raises ConfigurationError for an assignment that no index is made with."""
    for assignment in sets:
        if assignment.partition(".")[0].strip() not in INDEX_SECTIONS:
            raise ConfigurationError(
                f"--set {assignment} does not change an index.",
                code="NOT_AN_INDEX_SETTING",
                remedy=f"Settings of an index begin with {', '.join(f'{section}.' for section in INDEX_SECTIONS)}; set others where the server starts.",
            )


def outdated(generation: Generation, own: IndexConfig, versions: dict[str, int]) -> list[str]:
    """Stages whose facts another version of this program made, and this one would make otherwise; `own` has the fingerprints of this program's engines.
    Stages that only follow from them are not named: with what they read they do the same as ever."""
    upstream = {stage: generation.how.get(before) if before else None for stage, before in CHAIN.items()}
    return [stage for stage in CHAIN if stage_fingerprint(stage, own, versions[stage], upstream[stage]) != generation.how.get(stage)]


def outdated_error(generation: Generation, stages: Sequence[str]) -> GenerationMismatch:
    waits = "what comes new waits there, and is not searchable"
    return GenerationMismatch(
        f"{', '.join(stages)} of generation {generation.name} is the work of another version of this program; {waits if generation.state == 'live' else 'it waits'}",
        code="GENERATION_OUTDATED",
        remedy=WAYS_ON.get(generation.state, WAYS_ON["live"]).format(generation.name),
    )


def _differences(wanted: dict[str, dict[str, object]], live: dict[str, dict[str, object]]) -> list[str]:
    return [
        f"{section}.{key} is {values[key]!r} in the settings, {live[section].get(key)!r} in the index"
        for section, values in wanted.items()
        for key in values
        if key != "fingerprint" and values[key] != live[section].get(key)
    ]


def _extract(settings: Settings, live: IndexConfig | None) -> ExtractConfig:
    """A chat model that is set later does not change who extracts."""
    given = settings.extract.model_dump(exclude_none=True)
    if not given and live is not None:
        return ExtractConfig(engine=live.extract.engine, model=live.extract.model)
    if settings.extract.engine == "rules" or not (given or settings.chat.base_url):
        return ExtractConfig()
    return ExtractConfig(engine="openai", model=model_of(settings.extraction_server(), "extract" if given else "chat"))


def _embed(settings: Settings) -> EmbedConfig:
    embed = settings.embed
    if not embed.base_url:
        return EmbedConfig(state_dimension=embed.state_dimension)
    if embed.dimension is None:
        raise ConfigurationError("embed.base_url is set, embed.dimension is not", remedy="Set ANABRANCH_EMBED__DIMENSION to the length of the model's vectors.")
    return EmbedConfig(engine="openai", model=model_of(embed, "embed"), dimension=embed.dimension, state_dimension=0)


def model_of(model: ModelSettings, section: str) -> str:
    """Its name. Raises ConfigurationError where the settings give none."""
    if not model.model:
        raise ConfigurationError(f"{section}.base_url is set, {section}.model is not", remedy=f"Set ANABRANCH_{section.upper()}__MODEL.")
    return model.model
