"""Whether the tables are as far as what was read of the log: a backup of them that is older has missed what came since, erasures first of all."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from anabranch.composition.storage import Storage
from processors import control
from schemas.errors import ConfigurationError
from sql.receipts import PgReceipts
from streams.hosting import group_name

STAGE = control.STAGE


async def check_current(storage: Storage, erasures: Mapping[UUID, int]) -> None:
    """`erasures` are the receipts for which keys were destroyed, each with the offset at which that was said first. Raises ConfigurationError where stage control
    has acknowledged some of them, and these tables know nothing of it."""
    read = (await storage.log.acknowledged(group_name(STAGE.name, None), STAGE.topic)).get(0, 0)
    missed = await PgReceipts(storage.pool).unknown([receipt for receipt, offset in erasures.items() if offset < read])
    if missed:
        raise ConfigurationError(
            f"these tables are older than what was read of the log: {missed} erasures are not in them",
            code="TABLES_RESTORED",
            remedy="Make an empty database, restore only schema `keystore` into it, and run `anabranch rebuild` with no server running.",
        )
