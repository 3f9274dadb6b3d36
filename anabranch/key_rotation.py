"""Rotation of the master key: all keys wrapped anew in one transaction, while no other process of ours is connected."""

from __future__ import annotations

from pathlib import Path

from anabranch.composition.sealing import configured_master_key, open_key_file, parse_master_key
from anabranch.process.data_folder import check_not_in_use
from anabranch.secrets import finish_rotation, next_master_key
from anabranch.settings import Settings
from schemas.errors import ConfigurationError, KeyLost
from schemas.ports.keys import StoredKey
from sql.keystore import MasterChange, PgKeystore
from sql.migrate import migrate
from sql.pool import close_pool, open_pool
from streams.keys import Wrapping, fingerprint, unwrap_signing_key, wrap_signing_key
from streams.signatures import mac, signing_key

NAME = "anabranch keys"


async def rotate_master_key(settings: Settings, dsn: str, new_key_file: Path | None) -> int:
    """Wrap every key with the new master key; returns how many: 0 where a call that was interrupted had done it.

    A crash leaves all keys under the old master key or all under the new one; calling again, or the next start, goes on from there.
    Raises ConfigurationError where another process is connected, or a key is not the right one.
    """
    check_not_in_use(settings.data_dir)
    new = _new_key(settings, new_key_file)
    await migrate(dsn)
    pool = await open_pool(dsn, size=1, name=NAME)
    try:
        keystore, key_file = PgKeystore(pool), await open_key_file(settings, pool)
        known, count = await keystore.fingerprint(), 0
        if known != fingerprint(new):
            old = configured_master_key(settings, known)
            await keystore.agree(fingerprint(old), key_file.id if key_file else None)
            before, after = Wrapping(old, key_file), Wrapping(new, key_file)

            def rewrap(stored: StoredKey) -> StoredKey:
                try:
                    return after.rewrap(stored, before.unwrap(stored))
                except KeyLost:  # without its share no master key opens it
                    return stored

            def rewrap_signing(name: str, wrapped: bytes) -> bytes:
                return wrap_signing_key(new, name, unwrap_signing_key(old, name, wrapped))

            former = wrap_signing_key(new, fingerprint(old), signing_key(old))
            change = MasterChange(fingerprint(old), fingerprint(new), former, rewrap, rewrap_signing, lambda told: mac(signing_key(new), told))
            count = await keystore.rotate(change)
    finally:
        await close_pool(pool)
    if settings.log.master_key is None:
        finish_rotation(settings.data_dir)
    return count


def _new_key(settings: Settings, new_key_file: Path | None) -> bytes:
    if new_key_file is None and settings.log.master_key is not None:
        raise ConfigurationError(
            "The master key is set by ANABRANCH_LOG__MASTER_KEY, and no new one is given.",
            code="NO_NEW_KEY",
            remedy="Make one (openssl rand -base64 32 > new.key; chmod 600 new.key), and name it: --new-key-file new.key",
        )
    given = None
    if new_key_file is not None:
        try:
            given = parse_master_key(new_key_file.read_text().strip(), str(new_key_file))
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"{new_key_file} cannot be read: {error}", code="BAD_MASTER_KEY", remedy="Name a readable file.") from error
    return given if given is not None and settings.log.master_key is not None else next_master_key(settings.data_dir, given)
