"""Filters of the lists of runs, audit events and dead letters, page after page."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from schemas.errors import InvalidRequest
from schemas.events import AuditRecorded
from schemas.rows import EventRow
from sql.catalog.access import PgAudit
from sql.catalog.documents import DOCUMENT_ORDER, PgDocuments
from sql.catalog.listings import DEAD_LETTER_ORDER, RUN_ORDER, PgListings
from sql.inbox.shared_rows import write_shared_rows
from sql.index.entities import ENTITY_ORDER, PgEntities
from tests.support.api_client import LOCAL_CALLER, make_caller
from tests.support.document_rows import SampleDocument, insert_documents, insert_mention
from tests.support.search_stack import SearchStack

NOW = datetime.now(UTC).replace(microsecond=0)
GRAPH_FACTS = [
    {"kind": "relation", "subject": "Heron", "object": "weir"},
    {"kind": "relation", "subject": "heron", "object": "Otter"},
    {"kind": "claim", "subject": "Weir", "object": "4 m"},
]
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


async def test_runs_are_filtered_page_after_page(
    stack: SearchStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    hour = timedelta(hours=1)
    runs: list[tuple[str, str, dict[str, Any] | None, dict[str, Any] | None, timedelta | None]] = [
        (
            "Where is the heron?",
            "default",
            {"answer": "By the weir", "refused": False, "graph_facts": GRAPH_FACTS},
            None,
            None,
        ),
        ("Who feeds the Heron?", "fast", {"answer": None, "refused": True}, None, hour),
        ("When?", "default", None, None, 100 * hour),
        ("Why?", "fast", None, {"state": "cancelled"}, 100 * hour),
        ("What is a heron?", "default", None, None, -100 * hour),
        ("weir", "default", {"results": []}, None, None),
    ]
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
            assert [page async for page in listings.iterate_telemetry(caller)] == [[]]
    # Page after page, here of two runs.
    monkeypatch.setattr("sql.catalog.listings.TELEMETRY_PAGE", 2)
    pages = [page async for page in listings.iterate_telemetry(LOCAL_CALLER)]
    assert [[row["run_id"].int for row in page] for page in pages] == [[6, 5], [4, 3], [2, 1]]
    assert (pages[2][1]["graph_nodes"], pages[2][1]["graph_edges"]) == (3, 2)


async def test_runs_are_found_by_first_digits_of_their_id(stack: SearchStack) -> None:
    ids = [UUID(f"{start}{'0' * 26}") for start in ("abcd12", "abcd13", "abce00")]
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


async def test_audit_events_are_filtered_page_after_page(stack: SearchStack) -> None:
    events = [
        ("key:1", "source.added", "crm", "done"),
        ("local", "source.removed", "crm", "done"),
        ("key:1", "generation.promoted", "g2", "refused"),
        ("local", "source.added", "crm", "DUPLICATE_SOURCE"),
        ("local", "key.created", None, "done"),
    ]
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


async def test_dead_letters_are_filtered_by_stage_and_code(stack: SearchStack) -> None:
    letters = [
        ("chunk", "TIMED_OUT"),
        ("embed", "TIMED_OUT"),
        ("chunk", "BUG"),
        ("chunk", "TIMED_OUT"),
    ]
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


async def read_ids(
    read: Callable[..., Awaitable[Page]], key: str, *arguments: Any, **filters: Any
) -> list[UUID]:
    ids, after = list[UUID](), None
    while True:
        items, after = await read(*arguments, after=after, limit=2, **filters)
        assert not any("sort_value" in item for item in items)
        ids += [item[key] for item in items]
        if after is None:
            return ids


async def test_lists_are_sorted_page_after_page(stack: SearchStack) -> None:
    titles = ["Gamma_1", "alpha", "Älpha", "alpha", None]
    documents = [
        SampleDocument(f"d{number}", ["Ana met Bo"] * (number % 3), title=title, collection="law")
        for number, title in enumerate(titles)
    ]
    await insert_documents(stack.connection, *documents)
    for document in documents[1:3]:
        for name in ("ana", "bo")[: documents.index(document)]:
            await insert_mention(stack.connection, document, 0, "PERSON", name)
    for number in range(5):
        await stack.connection.execute(
            "insert into runs (id, tenant, kind, request, received_at) "
            "values ($1, 'default', 'query', $2, $3)",
            *(UUID(int=number), {"query": f"Q{number % 2}"}, NOW + timedelta(hours=number)),
        )
        await stack.connection.execute(
            "insert into dead_letters (event_id, stage, log_topic, log_partition, log_offset, "
            "code, detail, remedy, attempts, dead_lettered_at) "
            "values ($1, 'chunk', 'raw', 0, $2, 'c', 'd', 'r', 3, now())",
            *(UUID(int=number), number),
        )
    listings = PgListings(stack.pool)
    lists: list[tuple[Any, Any, Any, str, dict[str, Any]]] = [
        (
            *(PgDocuments(stack.pool).find_documents, DOCUMENT_ORDER, LOCAL_CALLER),
            "document_id",
            dict.fromkeys(("external_id", "collection", "tag", "state")),
        ),
        (listings.list_runs, RUN_ORDER, LOCAL_CALLER, "run_id", {}),
        *[(listings.list_dead_letters, DEAD_LETTER_ORDER, "default", "event_id", {"stage": None})],
        (
            *(PgEntities(stack.pool).list_entities, ENTITY_ORDER, LOCAL_CALLER, "id"),
            {"text": None, "kind": None},
        ),
    ]
    for read, order, caller, key, filters in lists:
        everything = await read_ids(read, key, caller, **filters)
        for column in order.columns:
            ascending = await read_ids(read, key, caller, sort=column, **filters)
            assert sorted(ascending) == sorted(everything) and len(ascending) > 1, column
            descending = await read_ids(read, key, caller, sort=f"{column}:desc", **filters)
            assert descending == ascending[::-1], column
        for sort in ("size", f"{order.default};drop", ":desc"):
            with pytest.raises(InvalidRequest, match="cannot be sorted by") as refused:
                await read(caller, after=None, limit=1, sort=sort, **filters)
            assert all(column in refused.value.remedy for column in order.columns)
        with pytest.raises(InvalidRequest, match="Invalid cursor"):
            await read(caller, after="x_1", limit=1, sort=None, **filters)
    read, _, caller, key, filters = lists[0]
    ids = await read_ids(read, key, caller, sort="title", **filters)
    names = {document.id: document.title for document in documents}
    assert [names[found] for found in ids] == [None, "alpha", "alpha", "Gamma_1", "Älpha"]
