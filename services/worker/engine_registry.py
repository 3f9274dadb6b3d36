"""The engines of every generation that is hosted: what two generations configure alike is there once."""

from __future__ import annotations

from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace

from anabranch.composition.engines import prepare_engines
from anabranch.composition.overrides import Overrides
from anabranch.config.generation_overrides import resolve_generation_settings
from anabranch.config.settings import Settings
from processors import get_stage_versions
from schemas.generations import Generation, IndexConfig
from services.engine_set import Engines
from services.index_comparison import add_engine_fingerprints, check_config_matches, find_outdated_stages
from services.worker.counting_engines import count_engine_inputs
from streams.instrumentation import Instrumentation


@dataclass(slots=True)
class EngineRegistry:
    """Engines live as long as the stack."""

    settings: Settings
    overrides: Overrides
    instrumentation: Instrumentation
    stack: AsyncExitStack
    prepared: list[tuple[IndexConfig, Engines]] = field(default_factory=list)
    input_counts: dict[str, Counter[str]] = field(default_factory=dict)
    """Generation → engine → inputs that it was asked about since they were last taken."""

    def add(self, config: IndexConfig, engines: Engines) -> None:
        self.prepared.append((config, engines))

    async def get_counting(self, generation: Generation) -> Engines:
        """Raises ConfigurationError where a model server has no address, GenerationMismatch where one is configured otherwise than the generation."""
        counts = self.input_counts.setdefault(generation.name, Counter())

        def count_inputs(engine: str, inputs: int) -> None:
            self.instrumentation.count_engine_inputs(engine, inputs)
            counts[engine] += inputs

        return count_engine_inputs(await self._get_or_prepare(generation), count_inputs)

    async def find_outdated_stages(self, generation: Generation) -> list[str]:
        """Stages of it that this program would do otherwise. Raises as `counted`."""
        return find_outdated_stages(generation, add_engine_fingerprints(generation.config, await self._get_or_prepare(generation)), get_stage_versions())

    def take_input_counts(self, generation: str) -> dict[str, int]:
        """What was asked for the generation since the last call."""
        counts = self.input_counts.get(generation, Counter())
        taken_counts = dict(counts)
        counts.clear()
        return taken_counts

    async def _get_or_prepare(self, generation: Generation) -> Engines:
        config = generation.config
        for prepared_config, engines in self.prepared:
            if prepared_config == config:
                return engines
        overrides = self._reuse_engines(config)
        engines = await self.stack.enter_async_context(prepare_engines(resolve_generation_settings(self.settings, generation.name), config, overrides))
        check_config_matches(add_engine_fingerprints(config, engines), config, generation.name)
        self.add(config, engines)
        return engines

    def _reuse_engines(self, config: IndexConfig) -> Overrides:
        overrides = replace(self.overrides.resolve_for(config), for_config=None)
        for prepared_config, engines in self.prepared:
            if (prepared_config.parse, prepared_config.ocr) == (config.parse, config.ocr):
                overrides = replace(overrides, parser=engines.parser)
            if prepared_config.chunk == config.chunk:
                overrides = replace(overrides, chunker=engines.chunker)
            if prepared_config.extract == config.extract:
                overrides = replace(overrides, extractor=engines.extractor)
            if prepared_config.embed == config.embed:
                overrides = replace(overrides, embedder=engines.embedder)
        return overrides
