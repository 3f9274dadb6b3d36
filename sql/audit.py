"""Store audit events in the table `audit_events`."""

from __future__ import annotations

from typing import Any

from schemas.rows import AuditRow
from sql.encoding import replace_nul
from sql.errors import translate_database_errors
from sql.page_cursor import format_cursor, parse_cursor
from sql.pool import Connection, Pool
from sql.query_loader import load_query


async def insert_audit_event(connection: Connection, row: AuditRow) -> None:
    texts = [
        replace_nul(value)
        for value in (row.who, row.role, row.what, row.subject, row.request_id, row.outcome)
    ]
    await connection.execute(
        load_query("insert_audit_event"), row.audit_id, replace_nul(row.tenant), row.at, *texts
    )


class PgAudit:
    """Audit events over Postgres.

    Every method may raise DatabaseUnavailable, or InvalidRequest if `after` is not a cursor of this
    list.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def list_events(
        self, tenant: str | None, *, after: str | None, limit: int
    ) -> tuple[list[dict[str, Any]], str | None]:
        """Return events, newest first, and the next cursor. A null tenant selects all tenants."""
        with translate_database_errors():
            rows = await self._pool.fetch(
                load_query("list_audit_events"), tenant, *parse_cursor(after), limit + 1
            )
        last = rows[limit - 1] if len(rows) > limit else None
        return [dict(row) for row in rows[:limit]], format_cursor(
            last["at"], last["audit_id"]
        ) if last else None
