"""Whose keys seal the log, and what wraps them."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol
from uuid import UUID

import structlog

from anabranch.key_file import KeyFile
from anabranch.secrets import master_key
from anabranch.settings import Settings
from schemas.errors import ConfigurationError, PermanentError
from schemas.events import KeysDestroyed
from schemas.ids import canonical_json
from schemas.ports.log import EventLog
from sql.keystore import EVERYBODY, PgKeystore, wrong_key_file
from sql.pool import Pool
from streams.codec import Codec
from streams.keys import KEY_BYTES, SealingKeys, fingerprint, unwrap_signing_key
from streams.signatures import Signatures, mac, signing_key
from streams.topics import CONTROL

logger = structlog.get_logger(__name__)
SHARES = "shares.key"


class ListedLog(EventLog, Protocol):
    async def topics(self) -> list[str]:
        """That are there, those of generations included."""


async def sealing_codec(settings: Settings, pool: Pool, log: ListedLog, key_file: KeyFile | None) -> Codec:
    """Opens what is sealed also where nothing new is to be. Raises ConfigurationError where the keystore was made with another master key or key file."""
    keystore = PgKeystore(pool)
    master = configured_master_key(settings, await keystore.fingerprint())
    await keystore.agree(fingerprint(master), key_file.id if key_file else None)
    if key_file is not None and (last := await keystore.last_slot()) is not None:
        key_file.skip_to(last)
    await keystore.leaves_readable(settings.log.plain_tenants if settings.log.encrypt else (EVERYBODY,))
    return Codec(SealingKeys(keystore, master, shares=key_file, plain=readable(settings)), signatures=await _signatures(keystore, master, log))


async def _signatures(keystore: PgKeystore, master: bytes, log: ListedLog) -> Signatures:
    """A log that an older version began holds events without signatures: up to where it ends at the first start of this version they are accepted."""
    former = (await keystore.signing_keys()).items()
    keys = [signing_key(master), *(unwrap_signing_key(master, name, wrapped) for name, wrapped in former)]
    noted = await keystore.unsigned_below()
    if noted is None:
        below = {} if await _begins_signed(log, Signatures(keys)) else {topic: _ends(await log.ends(topic)) for topic in await log.topics()}
        encoded = canonical_json(below)
        noted = await keystore.note_unsigned_below(encoded, mac(keys[0], encoded))
    encoded, tag = noted
    if not hmac.compare_digest(tag, mac(keys[0], encoded)):
        raise ConfigurationError(
            "The authentication code in table keystore.unsigned_events does not match its content.",
            code="WRONG_MASTER_KEY",
            remedy="Restore schema `keystore` from its backup, or give this process the master key that the keystore was made with.",
        )
    found = json.loads(encoded)
    return Signatures(keys, {topic: {int(partition): end for partition, end in ends.items()} for topic, ends in found.items()})


async def _begins_signed(log: EventLog, signatures: Signatures) -> bool:
    """Whether the log was begun by a version that signs: its first decision is, or there is none yet."""
    async for stored in log.read(CONTROL):
        return signatures.verify(stored)
    return True


def _ends(ends: Mapping[int, tuple[int, int]]) -> dict[str, int]:
    return {str(partition): following for partition, (_, following) in ends.items()}


async def open_key_file(settings: Settings, pool: Pool) -> KeyFile | None:
    """That of the settings, else the one in the data folder beside an embedded Postgres; None where several machines share a database.
    Raises ConfigurationError where it is missing."""
    path, known = key_file_path(settings), await PgKeystore(pool).key_file()
    if path is None and known is not None:
        path = settings.data_dir / SHARES  # the database of a data folder, named by its address
    if path is None:
        return None
    if known is not None and not path.exists():
        raise wrong_key_file(known, None)
    return KeyFile(path)


def key_file_path(settings: Settings) -> Path | None:
    beside = settings.data_dir / SHARES if settings.mode == "embedded" else None
    return settings.log.key_file or beside


async def overwrite_destroyed(pool: Pool, key_file: KeyFile | None) -> None:
    """Overwrite the shares of destroyed keys, also of those whose destruction a crash interrupted."""
    if key_file is not None:
        await asyncio.to_thread(key_file.overwrite, await PgKeystore(pool).destroyed_slots())


async def destroy_again(log: EventLog, codec: Codec, pool: Pool, key_file: KeyFile | None = None) -> dict[UUID, int]:
    """Apply what the log says of destroyed keys: the keystore may come from a backup that is older. Returns the receipts for which they
    were, each with the offset at which that was said first. Raises NewerVersion where a newer program said it."""
    told: dict[UUID, int] = {}
    keystore, kind = PgKeystore(pool), f"{KeysDestroyed.name}.v".encode()
    async for stored in log.read(CONTROL):
        if stored.record.headers.get("ce_type", b"").startswith(kind):
            try:
                fact = await codec.decode(stored)
            except PermanentError as error:
                logger.warning("event_skipped", topic=CONTROL, offset=stored.position.offset, code=error.code)
                continue
            await keystore.destroy(fact.data.tenant, fact.data.keys)
            told.setdefault(fact.data.receipt_id, stored.position.offset)
    await overwrite_destroyed(pool, key_file)
    return told


def readable(settings: Settings) -> Callable[[str], bool]:
    """Whether a tenant's events stay readable on the topics."""
    plain = frozenset(settings.log.plain_tenants)
    return lambda tenant: not settings.log.encrypt or tenant in plain


def configured_master_key(settings: Settings, known: str | None) -> bytes:
    """Return the master key from the settings, else from the data folder. `known`, the fingerprint in the keystore, decides how an interrupted rotation ends."""
    given = settings.log.master_key
    if given is not None:
        return parse_master_key(given.get_secret_value(), "ANABRANCH_LOG__MASTER_KEY")
    return master_key(settings.data_dir, lambda key: fingerprint(key) == known)


def parse_master_key(text: str, whose: str) -> bytes:
    """Raises ConfigurationError with code BAD_MASTER_KEY."""
    try:
        key = base64.b64decode(text, validate=True)
    except binascii.Error:
        key = b""
    if len(key) != KEY_BYTES:
        raise ConfigurationError(f"{whose} is not {KEY_BYTES} bytes in base64", code="BAD_MASTER_KEY", remedy="Make one with: openssl rand -base64 32")
    return key
