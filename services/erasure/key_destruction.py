"""Overwrite the shares of destroyed keys, and repeat the destructions that the log records."""

from __future__ import annotations

import asyncio
from uuid import UUID

import structlog

from schemas.errors import PermanentError
from schemas.events import KeysDestroyed
from schemas.ports.log import EventLog
from schemas.topics import CONTROL
from services.storage import ShareFile
from sql.operations.keystore import PgKeystore
from sql.pool import Pool
from streams.codec import Codec

log = structlog.get_logger(__name__)


async def overwrite_destroyed_shares(pool: Pool, key_file: ShareFile | None) -> None:
    """Overwrite the shares of all destroyed keys, including those whose destruction a crash
    interrupted.
    """
    if key_file is not None:
        await asyncio.to_thread(key_file.overwrite, await PgKeystore(pool).fetch_destroyed_slots())


async def reapply_key_destruction(
    event_log: EventLog, codec: Codec, pool: Pool, key_file: ShareFile | None = None
) -> dict[UUID, int]:
    """Destroy the keys that `key.destroyed` events name; the keystore may be an older backup that
    still has them.

    Returns each erasure receipt with the offset of its first event. Raises NewerVersion for an
    event of a newer program.
    """
    receipt_offsets: dict[UUID, int] = {}
    keystore, type_prefix = PgKeystore(pool), f"{KeysDestroyed.name}.v".encode()
    async for stored in event_log.read(CONTROL):
        if stored.record.headers.get("ce_type", b"").startswith(type_prefix):
            try:
                event = await codec.decode(stored)
            # Forged or damaged: applying it would destroy keys for good.
            except PermanentError as error:
                log.warning(
                    "event_skipped", topic=CONTROL, offset=stored.position.offset, code=error.code
                )
                continue
            await keystore.destroy(event.data.tenant, event.data.keys)
            receipt_offsets.setdefault(event.data.receipt_id, stored.position.offset)
    await overwrite_destroyed_shares(pool, key_file)
    return receipt_offsets
