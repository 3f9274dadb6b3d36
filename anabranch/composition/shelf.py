"""The engines of every generation that is hosted: what two generations configure alike is there once."""

from __future__ import annotations

from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace

from anabranch.background.counted_engines import counted
from anabranch.composition.engines import Engines, prepare_engines
from anabranch.composition.overrides import Overrides
from anabranch.generation_settings import settings_of
from anabranch.indexing import check_same, index_config, outdated
from anabranch.settings import Settings
from processors import versions
from schemas.generations import Generation, IndexConfig
from streams.observe import Observer


@dataclass(slots=True)
class EngineShelf:
    """Engines live as long as the stack."""

    settings: Settings
    overrides: Overrides
    observer: Observer
    stack: AsyncExitStack
    kept: list[tuple[IndexConfig, Engines]] = field(default_factory=list)
    asked: dict[str, Counter[str]] = field(default_factory=dict)
    """Generation → engine → inputs that it was asked about since they were last taken."""

    def keep(self, config: IndexConfig, engines: Engines) -> None:
        self.kept.append((config, engines))

    async def counted(self, generation: Generation) -> Engines:
        """Raises ConfigurationError where a model server has no address, GenerationMismatch where one is configured otherwise than the generation."""
        tally = self.asked.setdefault(generation.name, Counter())

        def asked(engine: str, inputs: int) -> None:
            self.observer.asked_engine(engine, inputs)
            tally[engine] += inputs

        return counted(await self._of(generation), asked)

    async def outdated(self, generation: Generation) -> list[str]:
        """Stages of it that this program would do otherwise. Raises as `counted`."""
        return outdated(generation, index_config(generation.config, await self._of(generation)), versions())

    def taken(self, generation: str) -> dict[str, int]:
        """What was asked for the generation since the last call."""
        tally = self.asked.get(generation, Counter())
        found = dict(tally)
        tally.clear()
        return found

    async def _of(self, generation: Generation) -> Engines:
        config = generation.config
        for known, engines in self.kept:
            if known == config:
                return engines
        given = self._alike(config)
        engines = await self.stack.enter_async_context(prepare_engines(settings_of(self.settings, generation.name), config, given))
        check_same(index_config(config, engines), config, generation.name)
        self.keep(config, engines)
        return engines

    def _alike(self, config: IndexConfig) -> Overrides:
        given = replace(self.overrides.of(config), for_config=None)
        for known, engines in self.kept:
            if (known.parse, known.ocr) == (config.parse, config.ocr):
                given = replace(given, parser=engines.parser)
            if known.chunk == config.chunk:
                given = replace(given, chunker=engines.chunker)
            if known.extract == config.extract:
                given = replace(given, extractor=engines.extractor)
            if known.embed == config.embed:
                given = replace(given, embedder=engines.embedder)
        return given
