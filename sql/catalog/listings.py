"""List runs, facts and dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from schemas.facts import Fact, FactStatus
from schemas.ids import find_id_range
from schemas.principals import Principal
from schemas.run_records import RunOutcome
from sql.page_cursor import format_cursor, parse_cursor
from sql.pool import Pool, fetch_rows

Body = dict[str, Any]


class PgListings:
    """Read-only lists. Every method may raise DatabaseUnavailable.

    Paged methods raise InvalidRequest if `after` is not a cursor of the list.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def list_runs(
        self,
        caller: Principal,
        *,
        after: str | None,
        limit: int,
        text: str | None = None,
        outcome: RunOutcome | None = None,
        profile: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        id_prefix: str | None = None,
    ) -> tuple[list[Body], str | None]:
        """Return a page of runs, newest first and without candidates, and the next cursor.

        A caller with limited access sees only its own runs.
        """
        rows = await fetch_rows(
            self._pool,
            "runs",
            caller.tenant,
            *parse_cursor(after),
            limit + 1,
            _restrict_to_caller(caller),
            text,
            outcome,
            profile,
            since,
            until,
            *find_id_range(id_prefix),
        )
        page = [dict(row) for row in rows[:limit]]
        last = rows[limit - 1] if len(rows) > limit else None
        return page, format_cursor(
            last["received_at"] or last["answered_at"], last["run_id"]
        ) if last else None

    async def get_run(self, caller: Principal, run_id: UUID) -> Body | None:
        rows = await fetch_rows(
            self._pool, "run", caller.tenant, run_id, _restrict_to_caller(caller)
        )
        return dict(rows[0]) if rows else None

    async def fetch_progress(self, caller: Principal, run_id: UUID) -> Body | None:
        rows = await fetch_rows(
            self._pool, "run_progress", caller.tenant, run_id, _restrict_to_caller(caller)
        )
        return dict(rows[0]) if rows else None

    async def find_ended(self, run_ids: Sequence[UUID]) -> dict[UUID, bool]:
        """Return the runs that ended, also in another process, and whether each was stopped."""
        rows = await fetch_rows(self._pool, "ended_runs", list(run_ids))
        return {row["id"]: row["is_stopped"] for row in rows}

    async def list_facts(
        self, caller: Principal, *, status: FactStatus | None, after: str | None, limit: int
    ) -> tuple[list[Fact], str | None]:
        """Return a page of the facts that the caller may read, newest first, and the next
        cursor.
        """
        rows = await fetch_rows(
            self._pool,
            "facts",
            caller.tenant,
            caller.readers,
            status,
            *parse_cursor(after),
            limit + 1,
        )
        page = [Fact(**row) for row in rows[:limit]]
        last = page[-1] if len(rows) > limit else None
        return page, format_cursor(last.stated_at, last.fact_id) if last else None

    async def list_dead_letters(
        self,
        tenant: str,
        *,
        stage: str | None,
        after: str | None,
        limit: int,
        code: str | None = None,
        text: str | None = None,
        id_prefix: str | None = None,
    ) -> tuple[list[Body], str | None]:
        """Return a page of dead letters, newest first, and the next cursor."""
        rows = await fetch_rows(
            self._pool,
            "dead_letters",
            tenant,
            stage,
            *parse_cursor(after),
            limit + 1,
            code,
            text,
            *find_id_range(id_prefix),
        )
        last = rows[limit - 1] if len(rows) > limit else None
        return [dict(row) for row in rows[:limit]], format_cursor(
            last["dead_lettered_at"], last["event_id"]
        ) if last else None

    async def count_dead_letters(self, tenant: str | None) -> dict[str, int]:
        """Return stage → number of dead letters, of one tenant or of all."""
        return {
            row["stage"]: row["events"]
            for row in await fetch_rows(self._pool, "dead_letter_counts", tenant)
        }


def _restrict_to_caller(caller: Principal) -> str | None:
    return None if caller.readers is None else caller.id
