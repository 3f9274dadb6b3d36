"""Store wrapped keys in the schema `keystore`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from schemas.batching import split_evenly
from schemas.errors import ConfigurationError
from schemas.ports.keys import StoredKey
from sql.database import Connection, PgStore, load_query, read_columns
from sql.errors import translate_database_errors

ALL_TENANTS = ""


ROTATION_BATCH_KEYS = 5_000
"""Keys to rewrap per statement."""
LOCK_KEY_TABLES = "lock table keystore.master, keystore.keys in access exclusive mode"


@dataclass(frozen=True, slots=True)
class MasterKeyRotation:
    """A change of the master key: the fingerprints, and functions that rewrap dependent rows."""

    old_fingerprint: str
    new_fingerprint: str
    old_signing_key: bytes
    """Signing key of the old master key, wrapped with the new one."""
    rewrap: Callable[[StoredKey], StoredKey]
    rewrap_signing: Callable[[str, bytes], bytes]
    mac: Callable[[bytes], bytes]


class PgKeystore(PgStore):
    """Implements `schemas.ports.keys.Keystore`. Every method may raise DatabaseUnavailable."""

    async def get_or_create(self, proposed: Sequence[StoredKey]) -> list[StoredKey]:
        columns = read_columns(proposed, "id", "tenant", "subject", "wrapped_key", "slot")
        rows = await self._fetch("obtain_keys", *columns)
        keys_by_subject = {(row["tenant"], row["subject"]): StoredKey(**row) for row in rows}
        # Not the proposed keys: another process may have created one for the subject first.
        return [keys_by_subject[key.tenant, key.subject] for key in proposed]

    async def fetch(self, ids: Sequence[UUID]) -> Mapping[UUID, StoredKey]:
        rows = await self._fetch("keys_by_id", list(ids))
        return {row["id"]: StoredKey(**row) for row in rows}

    async def fetch_current_ids(self, tenant: str, subjects: Sequence[UUID]) -> list[UUID]:
        return await self._fetch_column("current_key_ids", tenant, list(subjects))

    async def destroy(self, tenant: str, keys: Iterable[UUID]) -> None:
        await self._execute("destroy_keys", tenant, list(keys))

    async def fetch_destroyed_slots(self) -> list[int]:
        """Return the key file slots whose shares must be overwritten."""
        return await self._fetch_column("destroyed_slots")

    async def fetch_last_slot(self) -> int | None:
        """Return the highest slot that a key refers to."""
        slot: int | None = await self._fetch_value("last_slot")
        return slot

    async def record_readable_tenants(self, tenants: Sequence[str]) -> None:
        """Record tenants whose events stay unencrypted from now on; ALL_TENANTS selects all."""
        await self._execute_many("add_readable_tenant", [(tenant,) for tenant in tenants])

    async def fetch_readable_since(self, tenant: str) -> datetime | None:
        """Return when a tenant's events were first stored unencrypted; None if never."""
        since: datetime | None = await self._fetch_value("readable_since", tenant, ALL_TENANTS)
        return since

    async def fetch_unsigned_below(self) -> tuple[bytes, bytes] | None:
        """Return the offsets (JSON) below which unsigned events are accepted and their MAC; None if
        unset.
        """
        row = await self._fetch_row("unsigned_events")
        return (row["below"], row["mac"]) if row else None

    async def record_unsigned_below(self, below: bytes, mac: bytes) -> tuple[bytes, bytes]:
        """Record the offsets unless another process was first; return the recorded ones."""
        await self._execute("insert_unsigned_events", below, mac)
        stored = await self.fetch_unsigned_below()
        assert stored is not None, "the row is never deleted"
        return stored

    async def fetch_fingerprint(self) -> str | None:
        """Return the fingerprint of the master key; None before the first one is recorded."""
        fingerprint: str | None = await self._fetch_value("master_fingerprint")
        return fingerprint

    async def fetch_signing_keys(self) -> dict[str, bytes]:
        """Return the signing keys of former master keys by fingerprint, wrapped with the present
        one.
        """
        return await self._fetch_pairs("signing_keys")

    async def rotate(self, rotation: MasterKeyRotation) -> int:
        """Rewrap all keys in one transaction and return how many there are.

        A process that starts meanwhile waits, and then finds a master key that is not its own.
        Raises ConfigurationError with code PROCESSES_CONNECTED if other processes are connected,
        since they would continue with the old key.
        """
        async with self._transaction() as connection:
            await connection.execute("set local lock_timeout = '5s'")
            # Before the check: a process that connects later waits for these tables.
            await connection.execute(LOCK_KEY_TABLES)
            if n_connections := await connection.fetchval(load_query("count_other_connections")):
                raise ConfigurationError(
                    f"{n_connections} connections of other processes to this database are open.",
                    code="PROCESSES_CONNECTED",
                    remedy=(
                        "Stop every worker, API and `up`, which have the old master key in "
                        "memory, then try again."
                    ),
                )
            keys = [StoredKey(**row) for row in await connection.fetch(load_query("wrapped_keys"))]
            # Bounds the size of one statement; the whole rotation is one transaction.
            for batch in split_evenly(keys, ROTATION_BATCH_KEYS):
                rewrapped = [rotation.rewrap(key) for key in batch]
                await connection.execute(
                    load_query("rewrap_keys"), *read_columns(rewrapped, "id", "wrapped_key", "slot")
                )
            for row in await connection.fetch(load_query("signing_keys")):
                await connection.execute(
                    load_query("rewrap_signing_key"),
                    row["fingerprint"],
                    rotation.rewrap_signing(row["fingerprint"], row["wrapped"]),
                )
            await connection.execute(
                load_query("insert_signing_key"), rotation.old_fingerprint, rotation.old_signing_key
            )
            for row in await connection.fetch(load_query("unsigned_events")):
                await connection.execute(
                    load_query("replace_unsigned_mac"), rotation.mac(row["below"])
                )
            await connection.execute(
                load_query("replace_master_fingerprint"), rotation.new_fingerprint
            )
        return len(keys)

    async def fetch_key_file(self) -> UUID | None:
        """Return the id of the key file with the keys' shares; None if no key has a share."""
        key_file: UUID | None = await self._fetch_value("key_file")
        return key_file

    async def ensure_master_key(self, fingerprint: str, key_file: UUID | None = None) -> None:
        """Record the first master key and key file, or check that they are the recorded ones.

        Raises ConfigurationError if they are not.
        """
        with translate_database_errors():
            # The first process wins; every later one only compares.
            await self._pool.execute(load_query("insert_master"), fingerprint)
            if key_file is not None:
                await self._pool.execute(load_query("set_key_file"), key_file)
            stored_fingerprint = await self._pool.fetchval(load_query("master_fingerprint"))
            stored_key_file = await self._pool.fetchval(load_query("key_file"))
        if stored_fingerprint != fingerprint:
            raise ConfigurationError(
                "The keys in this database are wrapped by another master key "
                f"({stored_fingerprint}) than this process has ({fingerprint}).",
                code="WRONG_MASTER_KEY",
                remedy=(
                    "Give every process the same ANABRANCH_LOG__MASTER_KEY, or use the data folder "
                    "whose `master.key` belongs to this database."
                ),
            )
        if stored_key_file != key_file:
            raise wrong_key_file_error(stored_key_file, key_file)


def wrong_key_file_error(expected: UUID, actual: UUID | None) -> ConfigurationError:
    actual_text = f"has another one ({actual})" if actual else "has none"
    return ConfigurationError(
        f"The keys in this database have shares in the key file {expected}; this process "
        f"{actual_text}.",
        code="WRONG_KEY_FILE",
        remedy=(
            "Restore `shares.key` of the data folder from a backup, or set ANABRANCH_LOG__KEY_FILE "
            "to its path."
        ),
    )


async def fetch_destroyed_keys(connection: Connection, keys: Collection[UUID]) -> set[UUID]:
    """Return the subset of these keys that is destroyed."""
    if not keys:
        return set()
    rows = await connection.fetch(load_query("destroyed_keys"), list(keys))
    return {row["id"] for row in rows}
