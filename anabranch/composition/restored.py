"""Whether the tables are as far as what was read of the log: a backup of them that is older has missed what came since, erasures first of all."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from uuid import UUID

import structlog

from anabranch.composition.storage import Storage
from processors import control
from schemas.errors import ConfigurationError, LogUnavailable
from sql.receipts import PgReceipts
from streams.hosting import group_name

log = structlog.get_logger(__name__)
STAGE = control.STAGE
AGAIN_AFTER_S = 1.0


async def check_current(storage: Storage, erasures: Mapping[UUID, int]) -> None:
    """`erasures` are the receipts for which keys were destroyed, each with the offset at which that was said first. Raises ConfigurationError where stage control
    has acknowledged some of them, and these tables know nothing of it."""
    if not erasures:
        return
    read = await _read_of_control(storage)
    missed = await PgReceipts(storage.pool).unknown([receipt for receipt, offset in erasures.items() if offset < read])
    if missed:
        raise ConfigurationError(
            f"these tables are older than what was read of the log: {missed} erasures are not in them",
            code="TABLES_RESTORED",
            remedy="Make an empty database, restore only schema `keystore` into it, and run `anabranch rebuild` with no server running.",
        )


async def _read_of_control(storage: Storage) -> int:
    """The offset up to which it was. A broker that only just came back says so later."""
    while True:
        try:
            return (await storage.log.acknowledged(group_name(STAGE.name, None), STAGE.topic)).get(0, 0)
        except LogUnavailable as error:
            log.warning("waiting", stage=STAGE.name, code=error.code, detail=error.detail)
            await asyncio.sleep(AGAIN_AFTER_S)
