"""Reload the profiles in every API process: one reads the files, the others adopt them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from retrieval.profiles import ProfileCatalog, parse_profiles
from schemas.errors import ConfigurationError
from schemas.profiles import ReloadedConfig
from services.background_tasks import repeat
from sql.catalog.profiles import PgReloadedProfiles

log = structlog.get_logger(__name__)
POLL_S = 0.5


@dataclass(slots=True)
class ProfileReloader:
    catalog: ProfileCatalog
    read_files: Callable[[], ProfileCatalog]
    """Raises InvalidRequest for an invalid file. Blocks."""
    table: PgReloadedProfiles
    number: int
    """Number of the reload that this process uses."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def reload(self) -> ReloadedConfig:
        """Read the files, and make all processes use them.

        Raises InvalidRequest for an invalid file, and DatabaseUnavailable. Every process then
        keeps its profiles.
        """
        async with self.lock:
            profiles = await asyncio.to_thread(self.read_files)
            self.number = await self.table.store(profiles.sha256, profiles.files)
            changed = self.catalog.replace_with(profiles)
            return ReloadedConfig(changed=changed, sha256=profiles.sha256)

    async def adopt_newer(self) -> None:
        """Use the profiles that another process has reloaded, if there are any."""
        async with self.lock:
            if (reloaded := await self.table.fetch_newer(self.number)) is None:
                return
            self.number, files = reloaded
            try:
                profiles = parse_profiles(files)
            except ConfigurationError as error:
                # A process of another version of the program has read them.
                log.error("reloaded_profiles_refused", detail=error.detail)
                return
            changed = self.catalog.replace_with(profiles)
            log.info("profiles_reloaded", changed=changed, sha256=profiles.sha256)

    async def run(self) -> None:
        """Adopt reloads of other processes until cancelled."""
        await repeat(self.adopt_newer, POLL_S, "profile_reloads_unknown")
