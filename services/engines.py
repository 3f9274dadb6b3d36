"""Warm up the engines of a generation, and compare its index with them and with the settings."""

from __future__ import annotations

import asyncio
import fcntl
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import structlog

from schemas.errors import AnabranchError, GenerationMismatch
from schemas.generations import (
    UPSTREAM_STAGES,
    EmbedConfig,
    Generation,
    IndexConfig,
    ParseConfig,
    compute_stage_fingerprint,
)
from schemas.ports.engines import Chunker, Embedder, Extractor, LanguageDetector, Parser


@dataclass(frozen=True, slots=True)
class Engines:
    parser: Parser
    chunker: Chunker
    extractor: Extractor
    embedder: Embedder
    languages: LanguageDetector


log = structlog.get_logger(__name__)
LOCK_FILE = "warming.lock"
WARM_DELAY_S = 1.0
"""Leaves the cores to the rest of the start. A use in between does not wait for it."""


@runtime_checkable
class Warmable(Protocol):
    async def warm(self) -> None: ...


@asynccontextmanager
async def warm_in_background(engines: Iterable[object], folder: Path) -> AsyncIterator[None]:
    """Warm up the engines while the context is open.

    One process of a data folder at a time: the others find the results in the models folder.
    """
    task = asyncio.create_task(
        _warm_engines([engine for engine in engines if isinstance(engine, Warmable)], folder)
    )
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _warm_engines(engines: Iterable[Warmable], folder: Path) -> None:
    await asyncio.sleep(WARM_DELAY_S)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK_FILE).open("a") as lock:
        # Polled, since a blocking flock could not be cancelled and would stop the event loop.
        while True:
            try:
                fcntl.flock(lock.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(0.1)
        for engine in engines:
            try:
                await engine.warm()
            # Warming only saves time; the first use reports the same error.
            except AnabranchError as error:
                log.warning("engine_warmup_failed", code=error.code, detail=error.detail)


OUTDATED_REMEDIES = {
    "live": (
        "Run `anabranch reindex` to build an index with this version, then "
        "`anabranch generations promote`. {} serves queries until then."
    ),
    "standby": "Run `anabranch generations drop {}` when it is no longer needed.",
    "building": (
        "Run `anabranch generations drop {}` and `anabranch reindex` again, or start a worker of "
        "the version that began it."
    ),
}
"""By generation state."""


def add_engine_fingerprints(config: IndexConfig, engines: Engines) -> IndexConfig:
    embedder = engines.embedder
    embed = EmbedConfig(
        engine=config.embed.engine,
        model=embedder.model,
        dimension=embedder.dimension,
        state_dimension=embedder.state_dimension,
        fingerprint=embedder.fingerprint,
    )
    return config.model_copy(
        update={
            "parse": ParseConfig(fingerprint=engines.parser.fingerprint),
            "chunk": config.chunk.model_copy(update={"fingerprint": engines.chunker.fingerprint}),
            "extract": config.extract.model_copy(
                update={"fingerprint": engines.extractor.fingerprint}
            ),
            "embed": embed,
        }
    )


def check_config_matches(configured: IndexConfig, live: IndexConfig, generation: str) -> None:
    """Raise GenerationMismatch with the differing settings. Fingerprints are left to
    `find_outdated_stages`.
    """
    differences = [
        f"{name} is {change['to']!r} in the settings, {change['from']!r} in the index"
        for name, change in diff_settings(live, configured).items()
    ]
    if differences:
        raise GenerationMismatch(
            f"generation {generation} was built with another configuration: "
            f"{'; '.join(differences)}"
        )


def diff_settings(live: IndexConfig, configured: IndexConfig) -> dict[str, dict[str, object]]:
    """Map each setting that differs to its values `from` and `to`."""
    live_sections, configured_sections = live.model_dump(), configured.model_dump()
    return {
        f"{section}.{key}": {"from": live_sections[section].get(key), "to": value}
        for section, values in configured_sections.items()
        for key, value in values.items()
        if key != "fingerprint" and value != live_sections[section].get(key)
    }


def find_outdated_stages(
    generation: Generation, current_config: IndexConfig, versions: dict[str, int]
) -> list[str]:
    """List the stages whose output this program would produce differently than the program that
    built the generation.

    `current_config` has the fingerprints of this program's engines. A stage that differs only by
    its input is not listed.
    """
    # The upstream fingerprint is the recorded one, so that a change of `chunk` does not also report
    # `extract` and `embed`.
    recorded = generation.how
    # A stage added since then has no fingerprint: the generation holds nothing of an older version.
    return [
        stage
        for stage, upstream in UPSTREAM_STAGES.items()
        if stage in recorded
        and compute_stage_fingerprint(
            stage, current_config, versions[stage], recorded.get(upstream) if upstream else None
        )
        != recorded[stage]
    ]


def make_outdated_error(generation: Generation, stages: Sequence[str]) -> GenerationMismatch:
    consequence = (
        "new documents wait there and are not searchable"
        if generation.state == "live"
        else "it waits"
    )
    return GenerationMismatch(
        f"{', '.join(stages)} of generation {generation.name} was built by another version of "
        f"this program; {consequence}",
        code="GENERATION_OUTDATED",
        remedy=OUTDATED_REMEDIES.get(generation.state, OUTDATED_REMEDIES["live"]).format(
            generation.name
        ),
    )


def check_embedder(embedder: Embedder, generation: Generation) -> None:
    """Raise GenerationMismatch unless model and dimension are those of the generation."""
    expected = generation.config.embed
    if (embedder.model, embedder.dimension) != (expected.model, expected.dimension):
        raise GenerationMismatch(
            f"generation {generation.name} was embedded by {expected.model} with "
            f"{expected.dimension} dimensions, "
            f"the settings name {embedder.model} with {embedder.dimension}"
        )
