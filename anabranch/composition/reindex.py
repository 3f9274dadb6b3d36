"""Configurations of new generations, from the settings of this process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from anabranch.config.engines import prepare_engines
from anabranch.config.index_config import build_index_config, check_index_settings
from anabranch.config.loader import (
    load_overrides,
    override_settings,
    resolve_generation_settings,
    store_overrides,
)
from anabranch.config.overrides import NO_OVERRIDES, Overrides
from anabranch.config.settings import Settings
from anabranch.identity.approvals import check_settings_approved
from schemas.errors import ConfigurationError, InvalidRequest
from schemas.generations import Generation, IndexConfig
from services.engines import Engines, add_engine_fingerprints
from services.generations.decisions import GenerationDecisions
from services.generations.reindex import ReindexService
from services.storage import Storage


@dataclass(frozen=True, slots=True)
class SettingsReindexTargets:
    settings: Settings
    overrides: Overrides

    @asynccontextmanager
    async def open_target(
        self, live: Generation, assignments: Sequence[str]
    ) -> AsyncIterator[tuple[IndexConfig, Engines]]:
        # First: a caller could name a server of its own, to which keys would be sent.
        check_settings_approved(self.settings.data_dir, assignments)
        async with AsyncExitStack() as stack:
            try:
                settings = override_settings(
                    resolve_generation_settings(self.settings, live.name), assignments
                )
                check_index_settings(assignments)
                target = build_index_config(settings, live.config)
                engines = await stack.enter_async_context(
                    prepare_engines(settings, target, self.overrides)
                )
                config = add_engine_fingerprints(target, engines)
            except ConfigurationError as error:
                # At start-up this would be the operator's mistake; here it is the client's.
                raise InvalidRequest(error.detail, code=error.code, remedy=error.remedy) from error
            yield config, engines

    def store_settings(self, name: str, live: str, assignments: Sequence[str] = ()) -> None:
        store_overrides(self.settings, name, [*load_overrides(self.settings, live), *assignments])


def build_reindex_service(
    settings: Settings,
    storage: Storage,
    decisions: GenerationDecisions,
    overrides: Overrides = NO_OVERRIDES,
) -> ReindexService:
    return ReindexService(
        storage, decisions, SettingsReindexTargets(settings, overrides), settings.kafka.partitions
    )
