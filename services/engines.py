"""Engines of generations: open, share, count and warm them up, and compare an index with them."""

from __future__ import annotations

import asyncio
import fcntl
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

import structlog

from processors import get_stage_versions
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
from services.background_tasks import run_in_background
from streams.stage import Instrumentation


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
    warmable = [engine for engine in engines if isinstance(engine, Warmable)]
    async with run_in_background(_warm_engines(warmable, folder)):
        yield


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


EngineT = TypeVar("EngineT")


class _CountingEngine:
    """Calls `count` with the first argument of a method, and leaves the rest to the engine."""

    def __init__(self, inner: object, method: str, count: Callable[[Any], None]) -> None:
        self.inner, self.method, self.count = inner, method, count

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.inner, name)
        return partial(self._call, attribute) if name == self.method else attribute

    def _call(self, method: Callable[..., Any], first: object, *others: object) -> Any:
        # Before the call, since a failed attempt costs as much.
        self.count(first)
        return method(first, *others)


def _count_calls(engine: EngineT, method: str, count: Callable[[Any], None]) -> EngineT:
    return cast("EngineT", _CountingEngine(engine, method, count))


@dataclass(slots=True)
class SharedEngines:
    """Engines of other generations that a generation can use too; None where it needs its own."""

    parser: Parser | None = None
    chunker: Chunker | None = None
    extractor: Extractor | None = None
    embedder: Embedder | None = None


OpenEngines = Callable[[Generation, SharedEngines], AbstractAsyncContextManager[Engines]]


@dataclass(slots=True)
class EngineRegistry:
    """Open engines, and share them between generations. They are closed with `stack`."""

    open_engines: OpenEngines
    instrumentation: Instrumentation
    stack: AsyncExitStack
    prepared: list[tuple[IndexConfig, Engines]] = field(default_factory=list)
    input_counts: dict[str, Counter[str]] = field(default_factory=dict)
    """Generation to engine to the number of inputs since the last `take_input_counts`."""

    def add(self, config: IndexConfig, engines: Engines) -> None:
        self.prepared.append((config, engines))

    async def get_counting(self, generation: Generation) -> Engines:
        """Return the engines of the generation, wrapped to count their inputs.

        Raises ConfigurationError if a model server has no URL, GenerationMismatch if an engine
        differs from the generation's configuration.
        """
        counts = self.input_counts.setdefault(generation.name, Counter())

        def count_inputs(engine: str, inputs: int) -> None:
            self.instrumentation.count_engine_inputs(engine, inputs)
            counts[engine] += inputs

        engines = await self._get_or_prepare(generation)
        return replace(
            engines,
            parser=_count_calls(engines.parser, "parse", lambda _: count_inputs("parse", 1)),
            extractor=_count_calls(
                engines.extractor, "extract", lambda _: count_inputs("extract", 1)
            ),
            # Queries are not part of a build, so `embed_query` is not counted.
            embedder=_count_calls(
                engines.embedder, "embed", lambda texts: count_inputs("embed", len(texts))
            ),
        )

    async def find_outdated_stages(self, generation: Generation) -> list[str]:
        """List the stages that another program version built. Raises as `get_counting` does."""
        return find_outdated_stages(
            generation,
            add_engine_fingerprints(generation.config, await self._get_or_prepare(generation)),
            get_stage_versions(),
        )

    def take_input_counts(self, generation: str) -> dict[str, int]:
        """Return the input counts since the last call, and reset them."""
        counts = self.input_counts.get(generation, Counter())
        taken_counts = dict(counts)
        counts.clear()
        return taken_counts

    async def _get_or_prepare(self, generation: Generation) -> Engines:
        config = generation.config
        for prepared_config, engines in self.prepared:
            if prepared_config == config:
                return engines
        engines = await self.stack.enter_async_context(
            self.open_engines(generation, self._find_shared(config))
        )
        # A model server may serve another model than the settings name.
        check_config_matches(add_engine_fingerprints(config, engines), config, generation.name)
        self.add(config, engines)
        return engines

    def _find_shared(self, config: IndexConfig) -> SharedEngines:
        shared = SharedEngines()
        for prepared_config, engines in self.prepared:
            # The parser includes OCR.
            if (prepared_config.parse, prepared_config.ocr) == (config.parse, config.ocr):
                shared.parser = engines.parser
            if prepared_config.chunk == config.chunk:
                shared.chunker = engines.chunker
            if prepared_config.extract == config.extract:
                shared.extractor = engines.extractor
            if prepared_config.embed == config.embed:
                shared.embedder = engines.embedder
        return shared
