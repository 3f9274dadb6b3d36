"""Store API keys (hashes, never secrets) and audit events."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from schemas.api_keys import ApiKey
from schemas.principals import AuditOutcome, ReaderScope
from sql.database import Connection, PgStore, load_query, read_values
from sql.page_cursor import format_cursor, parse_cursor, split_page


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


class PgApiKeys(PgStore):
    """API keys over Postgres. Every method may raise DatabaseUnavailable.

    Changes commit when the context of `changes` exits without an error.
    """

    async def find(self, key_id: str) -> StoredApiKey | None:
        row = await self._fetch_row("find_api_key", key_id)
        if row is None:
            return None
        return StoredApiKey(
            **{**row, "readers": None if row["readers"] is None else tuple(row["readers"])}
        )

    async def get(self, key_id: str) -> ApiKey | None:
        row = await self._fetch_row("get_api_key", key_id)
        return ApiKey(**row) if row else None

    async def list_keys(
        self, tenant: str, *, readers: ReaderScope, after: str | None, limit: int
    ) -> list[ApiKey]:
        """Return keys, newest first. `after` is the id of the last key on the previous page.

        Only those that permit no more than `readers`.
        """
        return [
            ApiKey(**row)
            for row in await self._fetch("list_api_keys", tenant, after, limit, readers)
        ]

    async def has_any(self) -> bool:
        return bool(await self._fetch_value("has_api_keys"))

    @asynccontextmanager
    async def changes(self) -> AsyncIterator[ApiKeyChanges]:
        async with self._transaction() as connection:
            yield ApiKeyChanges(connection)


@dataclass(frozen=True, slots=True)
class ApiKeyChanges:
    connection: Connection

    async def insert(self, key: ApiKey, secret_hash: str) -> ApiKey:
        names = ("id", "tenant", "name", "role", "readers", "created_by", "expires_at")
        [row] = await self.connection.fetch(
            load_query("insert_api_key"), *read_values(key, *names), secret_hash
        )
        return ApiKey(**row)

    async def rotate(
        self, key_id: str, secret_hash: str, previous_until: datetime | None
    ) -> ApiKey | None:
        """Replace the hash of a key. Returns None if the key is revoked or unknown."""
        row = await self.connection.fetchrow(
            load_query("rotate_api_key"), key_id, secret_hash, previous_until
        )
        return ApiKey(**row) if row else None

    async def revoke(self, key_id: str) -> ApiKey | None:
        """Revoke a key. Idempotent; returns None if the key is unknown."""
        row = await self.connection.fetchrow(load_query("revoke_api_key"), key_id)
        return ApiKey(**row) if row else None


class PgAudit(PgStore):
    """Audit events over Postgres.

    Every method may raise DatabaseUnavailable, or InvalidRequest if `after` is not a cursor of this
    list.
    """

    async def list_events(
        self,
        tenant: str | None,
        *,
        after: str | None,
        limit: int,
        text: str | None = None,
        actor: str | None = None,
        action: str | None = None,
        outcome: AuditOutcome | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> tuple[list[dict[str, Any]], str | None]:
        """Return events, newest first, and the next cursor. A null tenant selects all tenants."""
        rows = await self._fetch_bodies(
            "list_audit_events",
            tenant,
            *parse_cursor(after),
            limit + 1,
            text,
            actor,
            action,
            outcome,
            since,
            until,
        )
        return split_page(
            rows, limit, lambda row: format_cursor(row["occurred_at"], row["audit_id"])
        )
