"""Construction of the codec: keys that encrypt and sign events, wrapped by the master key."""

from __future__ import annotations

import base64
import binascii
import hmac
import json
from collections.abc import Callable
from typing import Protocol

import structlog

from anabranch.config.settings import KEY_FILE_NAME, Settings
from anabranch.encryption.local_keys import KeyFile, load_master_key
from processors import EVENT_CLASSES
from schemas.errors import ConfigurationError
from schemas.ids import canonical_json
from schemas.ports.log import EventLog
from schemas.topics import CONTROL
from sql.operations.keystore import ALL_TENANTS, PgKeystore, wrong_key_file_error
from sql.pool import Pool
from streams.codec import Codec
from streams.payload_keys import (
    KEY_BYTES,
    SealingKeys,
    compute_master_key_fingerprint,
    unwrap_signing_key,
)
from streams.signatures import EventSigner, compute_mac, derive_signing_key

logger = structlog.get_logger(__name__)


class TopicListingLog(EventLog, Protocol):
    async def list_topics(self) -> list[str]:
        """List existing topics, including those of generations."""


async def build_codec(
    settings: Settings, pool: Pool, log: TopicListingLog, key_file: KeyFile | None
) -> Codec:
    """Build the codec. It decrypts existing events also if `log.encrypt` is off.

    Raises ConfigurationError if the keystore was created with another master key or key file.
    """
    keystore = PgKeystore(pool)
    master = resolve_master_key(settings, await keystore.fetch_fingerprint())
    await keystore.ensure_master_key(
        compute_master_key_fingerprint(master), key_file.id if key_file else None
    )
    if key_file is not None and (last := await keystore.fetch_last_slot()) is not None:
        # An older copy of the file must not assign the slots of newer keys again.
        key_file.skip_to(last)
    # Erasure receipts have to name events that were written unencrypted.
    await keystore.record_readable_tenants(
        settings.log.plain_tenants if settings.log.encrypt else (ALL_TENANTS,)
    )
    return Codec(
        SealingKeys(
            keystore, master, shares=key_file, is_plaintext_tenant=build_readable_check(settings)
        ),
        EVENT_CLASSES,
        signer=await _load_signatures(keystore, master, log),
    )


async def _load_signatures(
    keystore: PgKeystore, master: bytes, log: TopicListingLog
) -> EventSigner:
    """Load the signing keys. Raises ConfigurationError for another master key."""
    # A log of an older version holds unsigned events: those before the first start of this version
    # are accepted.
    former_keys = (await keystore.fetch_signing_keys()).items()
    keys = [
        derive_signing_key(master),
        *(unwrap_signing_key(master, name, wrapped) for name, wrapped in former_keys),
    ]
    unsigned_record = await keystore.fetch_unsigned_below()
    if unsigned_record is None:
        first_event = await anext(log.read(CONTROL), None)
        unsigned_below: dict[str, dict[str, int]] = {}
        if first_event is not None and not EventSigner(keys).verify(first_event):
            for topic in await log.list_topics():
                bounds = await log.fetch_offset_bounds(topic)
                unsigned_below[topic] = {
                    str(partition): end for partition, (_, end) in bounds.items()
                }
        # The ends decide which unsigned events are accepted, so a code under the master key
        # protects them.
        encoded = canonical_json(unsigned_below)
        unsigned_record = await keystore.record_unsigned_below(
            encoded, compute_mac(keys[0], encoded)
        )
    # What is stored counts: another process may have recorded its ends first.
    encoded, tag = unsigned_record
    if not hmac.compare_digest(tag, compute_mac(keys[0], encoded)):
        raise ConfigurationError(
            "The authentication code in table keystore.unsigned_events does not match its content.",
            code="WRONG_MASTER_KEY",
            remedy=(
                "Restore schema `keystore` from its backup, or use the master key that the "
                "keystore was created with."
            ),
        )
    unsigned_ends = json.loads(encoded)
    return EventSigner(
        keys,
        {
            topic: {int(partition): end for partition, end in ends.items()}
            for topic, ends in unsigned_ends.items()
        },
    )


async def open_key_file(settings: Settings, pool: Pool) -> KeyFile | None:
    """Open the key file of the settings, else that in the data folder of an embedded Postgres, else
    return None.

    Raises ConfigurationError if the keystore refers to a key file that is missing.
    """
    path, key_file_id = settings.resolve_key_file(), await PgKeystore(pool).fetch_key_file()
    if path is None and key_file_id is not None:
        path = (
            settings.data_dir / KEY_FILE_NAME
        )  # database.url points to the embedded Postgres of this data folder
    if path is None:
        return None
    if key_file_id is not None and not path.exists():
        raise wrong_key_file_error(key_file_id, None)
    return KeyFile(path)


def build_readable_check(settings: Settings) -> Callable[[str], bool]:
    """Return the predicate for tenants whose events are not encrypted."""
    plain = frozenset(settings.log.plain_tenants)
    return lambda tenant: not settings.log.encrypt or tenant in plain


def resolve_master_key(settings: Settings, keystore_fingerprint: str | None) -> bytes:
    """Return the master key from the settings, else from the data folder.

    The keystore's fingerprint decides whether an interrupted rotation is finished or undone.
    """
    configured = settings.log.master_key
    if configured is not None:
        return parse_master_key(configured.get_secret_value(), "ANABRANCH_LOG__MASTER_KEY")
    return load_master_key(
        settings.data_dir, lambda key: compute_master_key_fingerprint(key) == keystore_fingerprint
    )


def parse_master_key(text: str, setting_name: str) -> bytes:
    """Parse a key of 32 bytes in base64. Raises ConfigurationError with code BAD_MASTER_KEY."""
    try:
        key = base64.b64decode(text, validate=True)
    except binascii.Error:
        key = b""
    if len(key) != KEY_BYTES:
        raise ConfigurationError(
            f"{setting_name} is not {KEY_BYTES} bytes in base64.",
            code="BAD_MASTER_KEY",
            remedy="Create a key with: openssl rand -base64 32",
        )
    return key
