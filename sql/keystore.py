"""Store wrapped keys in the schema `keystore`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from schemas.errors import ConfigurationError
from schemas.ports.keys import StoredKey
from sql.errors import translate_database_errors
from sql.pool import Connection, Pool
from sql.query_loader import load_query

COLUMNS = "id, tenant, subject, wrapped as wrapped_key, slot, lost_at is not null and destroyed_at is null and wrapped is null as is_lost"
ALL_TENANTS = ""
DESTROY_KEYS = (
    "insert into keystore.keys (id, tenant, destroyed_at) select id, $1, clock_timestamp() from unnest($2::uuid[]) k (id) order by id "
    "on conflict (id) do update set wrapped = null, destroyed_at = coalesce(keys.destroyed_at, excluded.destroyed_at)"
)


ROTATION_BATCH_KEYS = 5_000
"""Keys to rewrap per statement."""
LOCK_KEY_TABLES = "lock table keystore.master, keystore.keys in access exclusive mode"
COUNT_CONNECTIONS = """
select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() and application_name like 'anabranch%'
"""
REWRAP_KEYS = "update keystore.keys k set wrapped = n.wrapped, slot = n.slot from unnest($1::uuid[], $2::bytea[], $3::bigint[]) n (id, wrapped, slot) where k.id = n.id"


@dataclass(frozen=True, slots=True)
class MasterKeyRotation:
    """A change of the master key: the fingerprints, and functions that rewrap the dependent rows."""

    old_fingerprint: str
    new_fingerprint: str
    old_signing_key: bytes
    """Signing key of the old master key, wrapped with the new one."""
    rewrap: Callable[[StoredKey], StoredKey]
    rewrap_signing: Callable[[str, bytes], bytes]
    mac: Callable[[bytes], bytes]


class PgKeystore:
    """Implements `schemas.ports.keys.Keystore`. Every method may raise DatabaseUnavailable."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def get_or_create(self, proposed: Sequence[StoredKey]) -> list[StoredKey]:
        columns = (
            [key.id for key in proposed],
            [key.tenant for key in proposed],
            [key.subject for key in proposed],
            [key.wrapped_key for key in proposed],
            [key.slot for key in proposed],
        )
        with translate_database_errors():
            rows = await self._pool.fetch(load_query("obtain_keys"), *columns)
        keys_by_subject = {(row["tenant"], row["subject"]): StoredKey(**row) for row in rows}
        return [keys_by_subject[key.tenant, key.subject] for key in proposed]

    async def fetch(self, ids: Sequence[UUID]) -> Mapping[UUID, StoredKey]:
        with translate_database_errors():
            rows = await self._pool.fetch(
                f"select {COLUMNS} from keystore.keys where id = any($1)", list(ids)
            )
        return {row["id"]: StoredKey(**row) for row in rows}

    async def fetch_current_ids(self, tenant: str, subjects: Sequence[UUID]) -> list[UUID]:
        query = "select id from keystore.keys where tenant = $1 and subject = any($2) and destroyed_at is null order by id"
        with translate_database_errors():
            return [row["id"] for row in await self._pool.fetch(query, tenant, list(subjects))]

    async def destroy(self, tenant: str, keys: Iterable[UUID]) -> None:
        with translate_database_errors():
            await self._pool.execute(DESTROY_KEYS, tenant, list(keys))

    async def fetch_destroyed_slots(self) -> list[int]:
        """Return the key file slots whose shares must be overwritten."""
        with translate_database_errors():
            rows = await self._pool.fetch(
                "select slot from keystore.keys where slot is not null and wrapped is null order by slot"
            )
        return [row["slot"] for row in rows]

    async def fetch_last_slot(self) -> int | None:
        """Return the highest slot that a key refers to."""
        with translate_database_errors():
            slot: int | None = await self._pool.fetchval("select max(slot) from keystore.keys")
        return slot

    async def mark_lost(self, keys: Mapping[UUID, str]) -> None:
        insert = "insert into keystore.keys (id, tenant, lost_at) select *, clock_timestamp() from unnest($1::uuid[], $2::text[]) on conflict do nothing"
        with translate_database_errors():
            await self._pool.execute(insert, list(keys), list(keys.values()))

    async def record_readable_tenants(self, tenants: Sequence[str]) -> None:
        """Record tenants whose events stay unencrypted from now on; ALL_TENANTS selects all."""
        with translate_database_errors():
            await self._pool.executemany(
                "insert into keystore.readable (tenant) values ($1) on conflict do nothing",
                [(tenant,) for tenant in tenants],
            )

    async def fetch_readable_since(self, tenant: str) -> datetime | None:
        """Return when a tenant's events were first stored unencrypted; None if never."""
        with translate_database_errors():
            since: datetime | None = await self._pool.fetchval(
                "select min(since) from keystore.readable where tenant in ($1, $2)",
                tenant,
                ALL_TENANTS,
            )
        return since

    async def fetch_unsigned_below(self) -> tuple[bytes, bytes] | None:
        """Return the offsets (JSON) below which unsigned events are accepted and their MAC; None if
        unset.
        """
        with translate_database_errors():
            row = await self._pool.fetchrow("select below, mac from keystore.unsigned_events")
        return (row["below"], row["mac"]) if row else None

    async def record_unsigned_below(self, below: bytes, mac: bytes) -> tuple[bytes, bytes]:
        """Record the offsets unless another process was first; return the recorded ones."""
        with translate_database_errors():
            await self._pool.execute(
                "insert into keystore.unsigned_events (below, mac) values ($1, $2) on conflict do nothing",
                below,
                mac,
            )
        stored = await self.fetch_unsigned_below()
        assert stored is not None, "the row is never deleted"
        return stored

    async def fetch_fingerprint(self) -> str | None:
        """Return the fingerprint of the master key; None before the first one is recorded."""
        with translate_database_errors():
            fingerprint: str | None = await self._pool.fetchval(
                "select fingerprint from keystore.master"
            )
        return fingerprint

    async def fetch_signing_keys(self) -> dict[str, bytes]:
        """Return the signing keys of former master keys by fingerprint, wrapped with the present
        one.
        """
        with translate_database_errors():
            return {
                row["fingerprint"]: row["wrapped"]
                for row in await self._pool.fetch(
                    "select fingerprint, wrapped from keystore.signing_keys"
                )
            }

    async def rotate(self, rotation: MasterKeyRotation) -> int:
        """Rewrap all keys in one transaction and return how many there are.

        A process that starts meanwhile waits, and then finds a master key that is not its own.
        Raises ConfigurationError with code PROCESSES_CONNECTED if other processes are connected,
        since they would continue with the old key.
        """
        with translate_database_errors():
            async with self._pool.acquire() as connection, connection.transaction():
                await connection.execute("set local lock_timeout = '5s'")
                await connection.execute(LOCK_KEY_TABLES)
                if n_connections := await connection.fetchval(COUNT_CONNECTIONS):
                    raise ConfigurationError(
                        f"{n_connections} connections of other processes to this database are open.",
                        code="PROCESSES_CONNECTED",
                        remedy="Stop every worker, API and `up`, which have the old master key in memory, then try again.",
                    )
                query = f"select {COLUMNS} from keystore.keys where wrapped is not null order by id"
                keys = [StoredKey(**row) for row in await connection.fetch(query)]
                for start in range(0, len(keys), ROTATION_BATCH_KEYS):
                    rewrapped = [
                        rotation.rewrap(key) for key in keys[start : start + ROTATION_BATCH_KEYS]
                    ]
                    await connection.execute(
                        REWRAP_KEYS,
                        [key.id for key in rewrapped],
                        [key.wrapped_key for key in rewrapped],
                        [key.slot for key in rewrapped],
                    )
                for row in await connection.fetch(
                    "select fingerprint, wrapped from keystore.signing_keys"
                ):
                    update = "update keystore.signing_keys set wrapped = $2 where fingerprint = $1"
                    await connection.execute(
                        update,
                        row["fingerprint"],
                        rotation.rewrap_signing(row["fingerprint"], row["wrapped"]),
                    )
                await connection.execute(
                    "insert into keystore.signing_keys values ($1, $2) on conflict do nothing",
                    rotation.old_fingerprint,
                    rotation.old_signing_key,
                )
                for row in await connection.fetch("select below from keystore.unsigned_events"):
                    await connection.execute(
                        "update keystore.unsigned_events set mac = $1", rotation.mac(row["below"])
                    )
                await connection.execute(
                    "update keystore.master set fingerprint = $1", rotation.new_fingerprint
                )
        return len(keys)

    async def fetch_key_file(self) -> UUID | None:
        """Return the id of the key file that contains the keys' shares; None if no key has a share."""
        with translate_database_errors():
            key_file: UUID | None = await self._pool.fetchval(
                "select key_file from keystore.master"
            )
        return key_file

    async def ensure_master_key(self, fingerprint: str, key_file: UUID | None = None) -> None:
        """Record the first master key and key file, or check that they are the recorded ones.

        Raises ConfigurationError if they are not.
        """
        with translate_database_errors():
            await self._pool.execute(
                "insert into keystore.master (fingerprint) values ($1) on conflict do nothing",
                fingerprint,
            )
            if key_file is not None:
                await self._pool.execute(
                    "update keystore.master set key_file = $1 where key_file is null", key_file
                )
            stored_fingerprint = await self._pool.fetchval(
                "select fingerprint from keystore.master"
            )
            stored_key_file = await self._pool.fetchval("select key_file from keystore.master")
        if stored_fingerprint != fingerprint:
            raise ConfigurationError(
                f"The keys in this database are wrapped by another master key ({stored_fingerprint}) than this process has ({fingerprint}).",
                code="WRONG_MASTER_KEY",
                remedy="Give every process the same ANABRANCH_LOG__MASTER_KEY, or use the data folder whose `master.key` belongs to this database.",
            )
        if stored_key_file != key_file:
            raise wrong_key_file_error(stored_key_file, key_file)


def wrong_key_file_error(expected: UUID, actual: UUID | None) -> ConfigurationError:
    actual_text = f"has another one ({actual})" if actual else "has none"
    return ConfigurationError(
        f"The keys in this database have shares in the key file {expected}; this process {actual_text}.",
        code="WRONG_KEY_FILE",
        remedy="Restore `shares.key` of the data folder from a backup, or set ANABRANCH_LOG__KEY_FILE to its path.",
    )


async def fetch_destroyed_keys(connection: Connection, keys: Collection[UUID]) -> set[UUID]:
    """Return the subset of these keys that is destroyed."""
    if not keys:
        return set()
    rows = await connection.fetch(
        "select id from keystore.keys where id = any($1) and destroyed_at is not null", list(keys)
    )
    return {row["id"] for row in rows}
