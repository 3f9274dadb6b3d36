"""Rebuild an empty database from the log."""

from __future__ import annotations

from typing import Any

from anabranch.composition.storage import prepare_storage
from anabranch.config.settings import Settings
from services.recovery.table_recovery import recover_tables

POOL_SIZE = 4


async def recover_database(settings: Settings, dsn: str) -> dict[str, Any] | None:
    """Prepare the storage and fill its tables; see `recover_tables`."""
    async with prepare_storage(settings, dsn, pool_size=POOL_SIZE, name="anabranch rebuild", relaxed_commits=True) as storage:
        return await recover_tables(storage)
