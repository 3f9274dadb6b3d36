"""Filters of the lists of runs, audit events and dead letters, page after page."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from schemas.events import AuditRecorded
from schemas.rows import EventRow
from sql.catalog.access import PgAudit
from sql.catalog.listings import PgListings
from sql.inbox.shared_rows import write_shared_rows
from tests.support.api_client import LOCAL_CALLER, make_caller
from tests.support.search_stack import open_search_stack

NOW = datetime.now(UTC).replace(microsecond=0)
Page = tuple[list[dict[str, Any]], str | None]


async def read_all(
    read: Callable[..., Awaitable[Page]], key: str, *arguments: Any, **filters: Any
) -> list[int]:
    """Read every page, one item each, and return the numbers that the ids stand for."""
    numbers, after = list[int](), None
    while True:
        [*items], after = await read(*arguments, after=after, limit=1, **filters)
        numbers += [item[key].int for item in items]
        if after is None:
            return numbers


RUN_FILTERS: list[tuple[dict[str, Any], list[int]]] = [
    ({}, [6, 5, 4, 3, 2, 1]),
    ({"text": "HERON"}, [5, 2, 1]),
    ({"text": "%"}, []),
    ({"outcome": "answered"}, [6, 1]),
    ({"outcome": "refused"}, [2]),
    ({"outcome": "running"}, [3]),
    ({"outcome": "stopped"}, [5, 4]),
    ({"profile": "fast"}, [4, 2]),
    ({"since": NOW + timedelta(hours=2), "until": NOW + timedelta(hours=4)}, [3, 2]),
    ({"text": "heron", "profile": "fast", "outcome": "refused"}, [2]),
]


async def test_runs_are_filtered_page_after_page(database: str) -> None:
    hour = timedelta(hours=1)
    runs: list[tuple[str, str, dict[str, Any] | None, dict[str, Any] | None, timedelta | None]] = [
        ("Where is the heron?", "default", {"answer": "By the weir", "refused": False}, None, None),
        ("Who feeds the Heron?", "fast", {"answer": None, "refused": True}, None, hour),
        ("When?", "default", None, None, 100 * hour),
        ("Why?", "fast", None, {"state": "cancelled"}, 100 * hour),
        ("What is a heron?", "default", None, None, -100 * hour),
        ("weir", "default", {"results": []}, None, None),
    ]
    async with open_search_stack(database) as stack:
        for number, (query, profile, response, stopped, left) in enumerate(runs, 1):
            received_at = NOW + number * hour
            await stack.connection.execute(
                "insert into runs (id, tenant, kind, request, received_at, response, answered_at, "
                "stopped, deadline) values ($1, 'default', 'query', $2, $3, $4, $5, $6, $7)",
                UUID(int=number),
                {"query": query, "profile": profile},
                received_at,
                response,
                received_at if response else None,
                stopped,
                NOW + left if left else None,
            )
        listings = PgListings(stack.pool)
        for filters, expected in RUN_FILTERS:
            assert await read_all(listings.list_runs, "run_id", LOCAL_CALLER, **filters) == expected
            for caller in (make_caller("other"), make_caller(readers=("user:ana",))):
                assert await read_all(listings.list_runs, "run_id", caller, **filters) == []


async def test_runs_are_found_by_first_digits_of_their_id(database: str) -> None:
    ids = [UUID(f"{start}{'0' * 26}") for start in ("abcd12", "abcd13", "abce00")]
    async with open_search_stack(database) as stack:
        for number, run in enumerate(ids):
            await stack.connection.execute(
                "insert into runs (id, tenant, kind, received_at, requested_by) "
                "values ($1, 'default', 'query', $2, 'key:1')",
                *(run, NOW + timedelta(hours=number)),
            )
        listings = PgListings(stack.pool)

        async def read(prefix: str, **caller: Any) -> list[UUID]:
            who = make_caller(**caller) if caller else LOCAL_CALLER
            page, _ = await listings.list_runs(who, after=None, limit=9, id_prefix=prefix)
            return [item["run_id"] for item in page]

        assert await read("ABCD") == [ids[1], ids[0]]
        assert await read("abcd12") == [ids[0]]
        assert await read("abcd", readers=("user:ana",)) == []
        assert await read("abcd", tenant="other") == []


AUDIT_FILTERS: list[tuple[dict[str, Any], list[int]]] = [
    ({}, [5, 4, 3, 2, 1]),
    ({"text": "CRM"}, [4, 2, 1]),
    ({"actor": "key:1"}, [3, 1]),
    ({"actor": "key"}, []),
    ({"action": "source.added"}, [4, 1]),
    ({"outcome": "failed"}, [4]),
    ({"outcome": "refused"}, [3]),
    ({"since": NOW + timedelta(hours=2), "until": NOW + timedelta(hours=4)}, [3, 2]),
    ({"action": "source.added", "outcome": "done"}, [1]),
]


async def test_audit_events_are_filtered_page_after_page(database: str) -> None:
    events = [
        ("key:1", "source.added", "crm", "done"),
        ("local", "source.removed", "crm", "done"),
        ("key:1", "generation.promoted", "g2", "refused"),
        ("local", "source.added", "crm", "DUPLICATE_SOURCE"),
        ("local", "key.created", None, "done"),
    ]
    async with open_search_stack(database) as stack:
        for number, (actor, action, subject, outcome) in enumerate(events, 1):
            occurred_at = NOW + timedelta(hours=number)
            event = AuditRecorded(
                audit_id=UUID(int=number),
                actor=actor,
                role="admin",
                action=action,
                subject=subject,
                tenant="default",
                occurred_at=occurred_at,
                outcome=outcome,
            )
            await write_shared_rows(stack.connection, [EventRow(event, number)])
        audit = PgAudit(stack.pool)
        for filters, expected in AUDIT_FILTERS:
            assert await read_all(audit.list_events, "audit_id", "default", **filters) == expected
            assert await read_all(audit.list_events, "audit_id", None, **filters) == expected
            assert await read_all(audit.list_events, "audit_id", "other", **filters) == []


async def test_dead_letters_are_filtered_by_stage_and_code(database: str) -> None:
    letters = [
        ("chunk", "TIMED_OUT"),
        ("embed", "TIMED_OUT"),
        ("chunk", "BUG"),
        ("chunk", "TIMED_OUT"),
    ]
    async with open_search_stack(database) as stack:
        for number, (stage, code) in enumerate(letters, 1):
            await stack.connection.execute(
                "insert into dead_letters (event_id, stage, log_topic, log_partition, log_offset, "
                "code, detail, remedy, attempts, dead_lettered_at) "
                "values ($1, $2, 'raw', 0, $3, $4, 'd', 'r', 1, $5)",
                *(UUID(int=number), stage, number, code, NOW + timedelta(hours=number)),
            )
        listings = PgListings(stack.pool)

        async def read(tenant: str = "default", **filters: Any) -> list[int]:
            return await read_all(listings.list_dead_letters, "event_id", tenant, **filters)

        assert await read(stage=None) == [4, 3, 2, 1]
        assert await read(stage=None, code="TIMED_OUT") == [4, 2, 1]
        assert await read(stage="chunk", code="TIMED_OUT") == [4, 1]
        assert await read(stage="chunk", code="BUG") == [3]
        assert await read("other", stage=None, code="BUG") == []
        assert await read(stage=None, text="bug") == [3]
        assert await read("other", stage=None, text="bug") == []
