"""Whose keys seal the log, and what wraps them."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from uuid import UUID

from anabranch.secrets import master_key
from anabranch.settings import Settings
from schemas.errors import ConfigurationError
from schemas.events import KeysDestroyed
from schemas.ports.log import EventLog
from sql.keystore import EVERYBODY, PgKeystore
from sql.pool import Pool
from streams.codec import Codec
from streams.keys import KEY_BYTES, SealingKeys, fingerprint
from streams.topics import CONTROL


async def sealing_codec(settings: Settings, pool: Pool) -> Codec:
    """Opens what is sealed also where nothing new is to be. Raises ConfigurationError where the keystore was made with another master key."""
    keystore, master = PgKeystore(pool), _master(settings)
    await keystore.agree(fingerprint(master))
    await keystore.leaves_readable(settings.log.plain_tenants if settings.log.encrypt else (EVERYBODY,))
    return Codec(SealingKeys(keystore, master, plain=readable(settings)))


async def destroy_again(log: EventLog, codec: Codec, pool: Pool) -> dict[UUID, int]:
    """Apply what the log says of destroyed keys: the keystore may come from a backup that is older. Returns the receipts for which they
    were, each with the offset at which that was said first. Raises NewerVersion where a newer program said it."""
    told: dict[UUID, int] = {}
    keystore, kind = PgKeystore(pool), f"{KeysDestroyed.name}.v".encode()
    async for stored in log.read(CONTROL):
        if stored.record.headers.get("ce_type", b"").startswith(kind):
            fact = await codec.decode(stored)
            await keystore.destroy(fact.data.tenant, fact.data.keys)
            told.setdefault(fact.data.receipt_id, stored.position.offset)
    return told


def readable(settings: Settings) -> Callable[[str], bool]:
    """Whether a tenant's events stay readable on the topics."""
    plain = frozenset(settings.log.plain_tenants)
    return lambda tenant: not settings.log.encrypt or tenant in plain


def _master(settings: Settings) -> bytes:
    given = settings.log.master_key
    if given is None:
        return master_key(settings.data_dir)
    try:
        key = base64.b64decode(given.get_secret_value(), validate=True)
    except binascii.Error as error:
        raise _not_a_key() from error
    if len(key) != KEY_BYTES:
        raise _not_a_key()
    return key


def _not_a_key() -> ConfigurationError:
    return ConfigurationError(
        f"ANABRANCH_LOG__MASTER_KEY is not {KEY_BYTES} bytes in base64", code="BAD_MASTER_KEY", remedy="Make one with: openssl rand -base64 32"
    )
