"""Store API keys in the table `credentials.api_keys`: hashes, never secrets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from schemas.api_keys import ApiKey
from sql.errors import translate_database_errors
from sql.pool import Connection, Pool

COLUMNS = "id, tenant, name, role, readers, created_at, created_by, expires_at, rotated_at, previous_until, revoked_at"


@dataclass(frozen=True, slots=True)
class StoredApiKey:
    """The fields of an API key that authentication reads.

    `previous_hash` is None once the grace period of the last rotation has ended.
    """

    id: str
    tenant: str
    role: Any
    readers: tuple[str, ...] | None
    valid: bool
    """Neither revoked nor expired, by the clock of the database."""
    hash: str
    previous_hash: str | None


class PgApiKeys:
    """API keys over Postgres. Every method may raise DatabaseUnavailable.

    Changes commit when the context of `changes` exits without an error.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def find(self, key_id: str) -> StoredApiKey | None:
        query = """
            select id, tenant, role, readers, hash,
              revoked_at is null and (expires_at is null or expires_at > clock_timestamp()) as valid,
              case when previous_until > clock_timestamp() then previous_hash end as previous_hash
            from credentials.api_keys where id = $1"""
        with translate_database_errors():
            row = await self._pool.fetchrow(query, key_id)
        if row is None:
            return None
        return StoredApiKey(
            **{**row, "readers": None if row["readers"] is None else tuple(row["readers"])}
        )

    async def get(self, key_id: str) -> ApiKey | None:
        with translate_database_errors():
            row = await self._pool.fetchrow(
                f"select {COLUMNS} from credentials.api_keys where id = $1", key_id
            )
        return ApiKey(**row) if row else None

    async def list_keys(self, tenant: str, *, after: str | None, limit: int) -> list[ApiKey]:
        """Return keys, newest first. `after` is the id of the last key on the previous page."""
        query = f"""
            select {COLUMNS} from credentials.api_keys k
            where tenant = $1 and ($2::text is null or (created_at, id) < (select created_at, id from credentials.api_keys where tenant = $1 and id = $2))
            order by created_at desc, id desc limit $3"""
        with translate_database_errors():
            return [ApiKey(**row) for row in await self._pool.fetch(query, tenant, after, limit)]

    async def has_any(self) -> bool:
        with translate_database_errors():
            return bool(
                await self._pool.fetchval("select exists (select from credentials.api_keys)")
            )

    @asynccontextmanager
    async def changes(self) -> AsyncIterator[ApiKeyChanges]:
        with translate_database_errors():
            async with self._pool.acquire() as connection, connection.transaction():
                yield ApiKeyChanges(connection)


@dataclass(frozen=True, slots=True)
class ApiKeyChanges:
    connection: Connection

    async def insert(self, key: ApiKey, secret_hash: str) -> ApiKey:
        query = f"""
            insert into credentials.api_keys (id, tenant, name, role, readers, created_by, expires_at, hash)
            values ($1, $2, $3, $4, $5, $6, $7, $8) returning {COLUMNS}"""
        values = (
            key.id,
            key.tenant,
            key.name,
            key.role,
            key.readers,
            key.created_by,
            key.expires_at,
            secret_hash,
        )
        [row] = await self.connection.fetch(query, *values)
        return ApiKey(**row)

    async def rotate(
        self, key_id: str, secret_hash: str, previous_until: datetime | None
    ) -> ApiKey | None:
        """Replace the hash of a key. Returns None if the key is revoked or unknown."""
        query = f"""
            update credentials.api_keys set rotated_at = clock_timestamp(), hash = $2, previous_until = $3,
              previous_hash = case when $3::timestamptz is null then null else hash end
            where id = $1 and revoked_at is null returning {COLUMNS}"""
        row = await self.connection.fetchrow(query, key_id, secret_hash, previous_until)
        return ApiKey(**row) if row else None

    async def revoke(self, key_id: str) -> ApiKey | None:
        """Revoke a key. Idempotent; returns None if the key is unknown."""
        query = f"""
            update credentials.api_keys set revoked_at = coalesce(revoked_at, clock_timestamp()), previous_hash = null, previous_until = null
            where id = $1 returning {COLUMNS}"""
        row = await self.connection.fetchrow(query, key_id)
        return ApiKey(**row) if row else None
