"""Rotation of the master key: all keys are rewrapped in one transaction, while no other process is
connected.
"""

from __future__ import annotations

from pathlib import Path

from anabranch.config.settings import Settings
from anabranch.encryption.codec import (
    finish_rotation,
    open_key_file,
    parse_master_key,
    prepare_next_master_key,
    resolve_master_key,
)
from anabranch.process.data_folder import check_not_in_use
from schemas.errors import ConfigurationError, KeyLost
from schemas.ports.keys import StoredKey
from sql.database import use_pool
from sql.operations.keystore import MasterKeyRotation, PgKeystore
from sql.operations.migrate import migrate
from streams.cloudevents import compute_mac, derive_signing_key
from streams.payload_keys import (
    KeyWrapper,
    compute_master_key_fingerprint,
    unwrap_signing_key,
    wrap_signing_key,
)

APPLICATION_NAME = "anabranch keys"


async def rotate_master_key(settings: Settings, dsn: str, new_key_file: Path | None) -> int:
    """Wrap every key with the new master key, and return how many: 0 if an interrupted call had
    done so already.

    A crash leaves all keys under the old master key or all under the new one; another call or the
    next start resumes. Raises ConfigurationError if another process is connected, or a key is
    wrong.
    """
    # A running server would go on wrapping new keys with the old master key.
    check_not_in_use(settings.data_dir)
    new_key = _resolve_new_key(settings, new_key_file)
    await migrate(dsn)
    async with use_pool(dsn, size=1, name=APPLICATION_NAME) as pool:
        keystore, key_file = PgKeystore(pool), await open_key_file(settings, pool)
        stored_fingerprint, count = await keystore.fetch_fingerprint(), 0
        if stored_fingerprint != compute_master_key_fingerprint(new_key):
            old_key = resolve_master_key(settings, stored_fingerprint)
            # Refuses a wrong old key before anything is wrapped with the new one.
            await keystore.ensure_master_key(
                compute_master_key_fingerprint(old_key), key_file.id if key_file else None
            )
            old_wrapping = KeyWrapper(old_key, key_file)
            new_wrapping = KeyWrapper(new_key, key_file)

            def rewrap(stored: StoredKey) -> StoredKey:
                try:
                    return new_wrapping.rewrap(stored, old_wrapping.unwrap(stored))
                except KeyLost:  # its share was erased, so no master key can unwrap it
                    return stored

            def rewrap_signing(name: str, wrapped: bytes) -> bytes:
                return wrap_signing_key(new_key, name, unwrap_signing_key(old_key, name, wrapped))

            # Kept for verification: events in the log stay signed with it.
            old_signing_key = wrap_signing_key(
                new_key, compute_master_key_fingerprint(old_key), derive_signing_key(old_key)
            )
            change = MasterKeyRotation(
                compute_master_key_fingerprint(old_key),
                compute_master_key_fingerprint(new_key),
                old_signing_key,
                rewrap,
                rewrap_signing,
                lambda message: compute_mac(derive_signing_key(new_key), message),
            )
            count = await keystore.rotate(change)
    # Only after the commit: until then the old key is needed.
    if settings.log.master_key is None:
        finish_rotation(settings.data_dir)
    return count


def _resolve_new_key(settings: Settings, new_key_file: Path | None) -> bytes:
    if new_key_file is None and settings.log.master_key is not None:
        raise ConfigurationError(
            "The master key is set by ANABRANCH_LOG__MASTER_KEY, and no new key was given.",
            code="NO_NEW_KEY",
            remedy="Create one (openssl rand -base64 32 > new.key; chmod 600 new.key), and add "
            "--new-key-file new.key",
        )
    provided_key = None
    if new_key_file is not None:
        try:
            provided_key = parse_master_key(new_key_file.read_text().strip(), str(new_key_file))
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(
                f"Cannot read {new_key_file}: {error}.",
                code="BAD_MASTER_KEY",
                remedy="Use a readable file.",
            ) from error
    return (
        provided_key
        if provided_key is not None and settings.log.master_key is not None
        else prepare_next_master_key(settings.data_dir, provided_key)
    )
