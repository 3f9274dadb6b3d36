"""The keystore: wrapped keys in a schema of their own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from schemas.errors import ConfigurationError
from schemas.ports.keys import StoredKey
from sql.errors import database_errors
from sql.pool import Connection, Pool
from sql.statements import statement

COLUMNS = "id, tenant, subject, wrapped, slot, lost_at is not null and destroyed_at is null and wrapped is null as lost"
EVERYBODY = ""
DESTROY = (
    "insert into keystore.keys (id, tenant, destroyed_at) select id, $1, clock_timestamp() from unnest($2::uuid[]) k (id) order by id "
    "on conflict (id) do update set wrapped = null, destroyed_at = coalesce(keys.destroyed_at, excluded.destroyed_at)"
)


ROTATED = 5_000
"""Keys wrapped anew in one statement."""
LOCK_MASTER = "lock table keystore.master, keystore.keys in access exclusive mode"
CONNECTED = """
select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() and application_name like 'anabranch%'
"""
REWRAP = (
    "update keystore.keys k set wrapped = n.wrapped, slot = n.slot from unnest($1::uuid[], $2::bytea[], $3::bigint[]) n (id, wrapped, slot) where k.id = n.id"
)


@dataclass(frozen=True, slots=True)
class MasterChange:
    """From one master key to another, by their fingerprints, and how the rows that depend on it are made."""

    old: str
    new: str
    former: bytes
    """The old one's signing key, wrapped with the new one."""
    rewrap: Callable[[StoredKey], StoredKey]
    rewrap_signing: Callable[[str, bytes], bytes]
    mac: Callable[[bytes], bytes]


class PgKeystore:
    """Keystore over the schema of that name."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def obtain(self, proposed: Sequence[StoredKey]) -> list[StoredKey]:
        columns = (
            [key.id for key in proposed],
            [key.tenant for key in proposed],
            [key.subject for key in proposed],
            [key.wrapped for key in proposed],
            [key.slot for key in proposed],
        )
        with database_errors():
            rows = await self._pool.fetch(statement("obtain_keys"), *columns)
        found = {(row["tenant"], row["subject"]): StoredKey(**row) for row in rows}
        return [found[key.tenant, key.subject] for key in proposed]

    async def find(self, ids: Sequence[UUID]) -> Mapping[UUID, StoredKey]:
        with database_errors():
            rows = await self._pool.fetch(f"select {COLUMNS} from keystore.keys where id = any($1)", list(ids))
        return {row["id"]: StoredKey(**row) for row in rows}

    async def current(self, tenant: str, subjects: Sequence[UUID]) -> list[UUID]:
        query = "select id from keystore.keys where tenant = $1 and subject = any($2) and destroyed_at is null order by id"
        with database_errors():
            return [row["id"] for row in await self._pool.fetch(query, tenant, list(subjects))]

    async def destroy(self, tenant: str, keys: Iterable[UUID]) -> None:
        with database_errors():
            await self._pool.execute(DESTROY, tenant, list(keys))

    async def destroyed_slots(self) -> list[int]:
        """Slots of the key file whose shares must be overwritten."""
        with database_errors():
            rows = await self._pool.fetch("select slot from keystore.keys where slot is not null and wrapped is null order by slot")
        return [row["slot"] for row in rows]

    async def last_slot(self) -> int | None:
        """The highest slot that any key refers to."""
        with database_errors():
            found: int | None = await self._pool.fetchval("select max(slot) from keystore.keys")
        return found

    async def lose(self, keys: Mapping[UUID, str]) -> None:
        insert = "insert into keystore.keys (id, tenant, lost_at) select *, clock_timestamp() from unnest($1::uuid[], $2::text[]) on conflict do nothing"
        with database_errors():
            await self._pool.execute(insert, list(keys), list(keys.values()))

    async def leaves_readable(self, tenants: Sequence[str]) -> None:
        """From now on nothing is sealed for these; EVERYBODY stands for all."""
        with database_errors():
            await self._pool.executemany("insert into keystore.readable (tenant) values ($1) on conflict do nothing", [(tenant,) for tenant in tenants])

    async def readable_since(self, tenant: str) -> datetime | None:
        """Since when a tenant's events were left readable for the first time; None: they never were."""
        with database_errors():
            found: datetime | None = await self._pool.fetchval("select min(since) from keystore.readable where tenant in ($1, $2)", tenant, EVERYBODY)
        return found

    async def unsigned_below(self) -> tuple[bytes, bytes] | None:
        """The offsets below which events without a signature are accepted, as JSON, and its authentication code; None before they are noted."""
        with database_errors():
            row = await self._pool.fetchrow("select below, mac from keystore.unsigned_events")
        return (row["below"], row["mac"]) if row else None

    async def note_unsigned_below(self, below: bytes, mac: bytes) -> tuple[bytes, bytes]:
        """Unless another process did so first; returns what is noted."""
        with database_errors():
            await self._pool.execute("insert into keystore.unsigned_events (below, mac) values ($1, $2) on conflict do nothing", below, mac)
        noted = await self.unsigned_below()
        assert noted is not None, "the row is never deleted"
        return noted

    async def fingerprint(self) -> str | None:
        """Of the master key that wraps these keys; None before the first one came."""
        with database_errors():
            found: str | None = await self._pool.fetchval("select fingerprint from keystore.master")
        return found

    async def signing_keys(self) -> dict[str, bytes]:
        """Of former master keys by fingerprint, wrapped with the present one."""
        with database_errors():
            return {row["fingerprint"]: row["wrapped"] for row in await self._pool.fetch("select fingerprint, wrapped from keystore.signing_keys")}

    async def rotate(self, change: MasterChange) -> int:
        """All keys in one transaction; returns how many. A process that starts meanwhile waits, and finds another master key than its own.
        Raises ConfigurationError with code PROCESSES_CONNECTED where others are connected: they would go on with the old one."""
        with database_errors():
            async with self._pool.acquire() as connection, connection.transaction():
                await connection.execute("set local lock_timeout = '5s'")
                await connection.execute(LOCK_MASTER)
                if connected := await connection.fetchval(CONNECTED):
                    raise ConfigurationError(
                        f"{connected} connections of other processes are open on this database.",
                        code="PROCESSES_CONNECTED",
                        remedy="Stop every worker, API and `up`, then call it again: they hold the old master key in memory.",
                    )
                query = f"select {COLUMNS} from keystore.keys where wrapped is not null order by id"
                keys = [StoredKey(**row) for row in await connection.fetch(query)]
                for start in range(0, len(keys), ROTATED):
                    made = [change.rewrap(key) for key in keys[start : start + ROTATED]]
                    await connection.execute(REWRAP, [key.id for key in made], [key.wrapped for key in made], [key.slot for key in made])
                for row in await connection.fetch("select fingerprint, wrapped from keystore.signing_keys"):
                    update = "update keystore.signing_keys set wrapped = $2 where fingerprint = $1"
                    await connection.execute(update, row["fingerprint"], change.rewrap_signing(row["fingerprint"], row["wrapped"]))
                await connection.execute("insert into keystore.signing_keys values ($1, $2) on conflict do nothing", change.old, change.former)
                for row in await connection.fetch("select below from keystore.unsigned_events"):
                    await connection.execute("update keystore.unsigned_events set mac = $1", change.mac(row["below"]))
                await connection.execute("update keystore.master set fingerprint = $1", change.new)
        return len(keys)

    async def key_file(self) -> UUID | None:
        """The key file that holds the shares of these keys; None where no key has one."""
        with database_errors():
            found: UUID | None = await self._pool.fetchval("select key_file from keystore.master")
        return found

    async def agree(self, fingerprint: str, key_file: UUID | None = None) -> None:
        """The first master key and the first key file to come hold. Raises ConfigurationError for others."""
        with database_errors():
            await self._pool.execute("insert into keystore.master (fingerprint) values ($1) on conflict do nothing", fingerprint)
            if key_file is not None:
                await self._pool.execute("update keystore.master set key_file = $1 where key_file is null", key_file)
            known = await self._pool.fetchval("select fingerprint from keystore.master")
            file = await self._pool.fetchval("select key_file from keystore.master")
        if known != fingerprint:
            raise ConfigurationError(
                f"the keys in this database are wrapped by another master key ({known}) than this process has ({fingerprint})",
                code="WRONG_MASTER_KEY",
                remedy="Give every process the same ANABRANCH_LOG__MASTER_KEY, or the data folder whose `master.key` made this database.",
            )
        if file != key_file:
            raise wrong_key_file(file, key_file)


def wrong_key_file(wanted: UUID, given: UUID | None) -> ConfigurationError:
    has = f"has another one ({given})" if given else "has none"
    return ConfigurationError(
        f"The keys in this database have shares in the key file {wanted}; this process {has}.",
        code="WRONG_KEY_FILE",
        remedy="Restore `shares.key` of the data folder from its backup, or name the file with ANABRANCH_LOG__KEY_FILE.",
    )


async def destroyed(connection: Connection, keys: Collection[UUID]) -> set[UUID]:
    """Of these, the ones that are gone for good."""
    if not keys:
        return set()
    rows = await connection.fetch("select id from keystore.keys where id = any($1) and destroyed_at is not null", list(keys))
    return {row["id"] for row in rows}
