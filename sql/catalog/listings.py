"""List runs, facts and dead letters."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any, Unpack
from uuid import UUID

from schemas.facts import Fact, FactStatus
from schemas.ids import find_id_range
from schemas.principals import Principal
from schemas.run_records import RunFilters
from sql.database import PgStore
from sql.page_cursor import ListOrder, PageOrder, format_cursor, parse_cursor, split_page

Body = dict[str, Any]
RUN_ORDER = ListOrder(
    {
        "received_at": ("coalesce(received_at, answered_at)", "timestamptz"),
        "query": ("coalesce(request ->> 'query', '')", "text"),
        "profile": ("coalesce(request ->> 'profile', '')", "text"),
        "generation": ("coalesce(generation, '')", "text"),
    },
    "received_at:desc",
)
DEAD_LETTER_ORDER = ListOrder(
    {
        "dead_lettered_at": ("l.dead_lettered_at", "timestamptz"),
        "stage": ("l.stage", "text"),
        "code": ("l.code", "text"),
        "attempts": ("l.attempts", "bigint"),
    },
    "dead_lettered_at:desc",
)
TELEMETRY_PAGE = 5_000
"""Each page sorts all runs of the tenant, so an export reads few large ones."""


class PgListings(PgStore):
    """Read-only lists. Every method may raise DatabaseUnavailable.

    Paged methods raise InvalidRequest for an unknown order, and if `after` is not a cursor of it.
    """

    async def list_runs(
        self,
        caller: Principal,
        *,
        after: str | None,
        limit: int,
        sort: str | None = None,
        **filters: Unpack[RunFilters],
    ) -> tuple[list[Body], str | None]:
        """Return a page of runs, in `RUN_ORDER` and without candidates, and the next cursor.

        A caller with limited access sees only its own runs.
        """
        order = RUN_ORDER.parse(sort, after)
        return await self._fetch_runs("runs", caller, order, limit, filters)

    async def iterate_telemetry(
        self, caller: Principal, **filters: Unpack[RunFilters]
    ) -> AsyncGenerator[list[Body], None]:
        """Yield the telemetry of runs, newest first, page after page.

        Holds no connection between pages, since a client may read as slowly as it likes.
        """
        after = None
        while True:
            order = RUN_ORDER.parse(None, after)
            rows, after = await self._fetch_runs(
                "run_telemetry", caller, order, TELEMETRY_PAGE, filters
            )
            yield rows
            if after is None:
                return

    async def _fetch_runs(
        self, query: str, caller: Principal, order: PageOrder, limit: int, filters: RunFilters
    ) -> tuple[list[Body], str | None]:
        rows = await self._fetch_bodies(
            query,
            caller.tenant,
            order.last_value,
            order.last_id,
            limit + 1,
            _restrict_to_caller(caller),
            *(filters.get(name) for name in ("text", "outcome", "profile", "since", "until")),
            *find_id_range(filters.get("id_prefix")),
            **order.substitutions,
        )
        return order.split_page(rows, limit, "run_id")

    async def get_run(self, caller: Principal, run_id: UUID) -> Body | None:
        rows = await self._fetch("run", caller.tenant, run_id, _restrict_to_caller(caller))
        return dict(rows[0]) if rows else None

    async def fetch_progress(self, caller: Principal, run_id: UUID) -> Body | None:
        rows = await self._fetch("run_progress", caller.tenant, run_id, _restrict_to_caller(caller))
        return dict(rows[0]) if rows else None

    async def find_ended(self, run_ids: Sequence[UUID]) -> dict[UUID, bool]:
        """Return the runs that ended, also in another process, and whether each was stopped."""
        return await self._fetch_pairs("ended_runs", list(run_ids))

    async def list_facts(
        self, caller: Principal, *, status: FactStatus | None, after: str | None, limit: int
    ) -> tuple[list[Fact], str | None]:
        """Return a page of the facts that the caller may read, newest first, and the next
        cursor.
        """
        rows = await self._fetch_bodies(
            "facts", caller.tenant, caller.readers, status, *parse_cursor(after), limit + 1
        )
        page, next_cursor = split_page(
            rows, limit, lambda row: format_cursor(row["stated_at"], row["fact_id"])
        )
        return [Fact(**row) for row in page], next_cursor

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
        sort: str | None = None,
    ) -> tuple[list[Body], str | None]:
        """Return a page of dead letters, in `DEAD_LETTER_ORDER`, and the next cursor."""
        order = DEAD_LETTER_ORDER.parse(sort, after)
        rows = await self._fetch_bodies(
            "dead_letters",
            tenant,
            stage,
            order.last_value,
            order.last_id,
            limit + 1,
            code,
            text,
            *find_id_range(id_prefix),
            **order.substitutions,
        )
        return order.split_page(rows, limit, "event_id")

    async def count_dead_letters(self, tenant: str | None) -> dict[str, int]:
        """Return stage → number of dead letters, of one tenant or of all."""
        return await self._fetch_pairs("dead_letter_counts", tenant)


def _restrict_to_caller(caller: Principal) -> str | None:
    return None if caller.readers is None else caller.id
