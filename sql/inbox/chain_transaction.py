"""The transaction of chained documents: events, rows, activation and the claim of ingress at once.

Locks in the order of the claim transaction: visibility, documents, inbox.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from uuid import UUID

from schemas.generations import Generation
from schemas.ports.ledger import (
    ChainedDocument,
    ChainedEvent,
    ClaimStatus,
    OrderingPolicy,
    ProjectedEvent,
    RevisionPreview,
)
from schemas.records import Position
from sql.advisory_locks import share_visibility_lock
from sql.encoding import format_array
from sql.inbox import amendments, revision_rows
from sql.inbox.document_state import (
    add_stubs,
    load_visible_revisions,
    lock_documents,
    read_documents,
)
from sql.inbox.revision_policy import DocumentState, States, Verdict, decide_event
from sql.inbox.visibility import activate_complete_revisions
from sql.index.derived_tables import copy_rows
from sql.invalidation import ALL_GENERATIONS, record_index_change
from sql.log.event_log import encode_headers
from sql.pool import Connection
from sql.query_loader import load_query

INGRESS = "receive"


class ChainContradicted(Exception):
    """The tables activated another revision than the chain derived."""


async def preview_revisions(
    connection: Connection, generation: Generation, events: Sequence[ProjectedEvent]
) -> list[RevisionPreview]:
    """Decide about revisions without locks. At most one event per document."""
    states = await read_documents(connection, generation, events)
    if any(state.latest is not None for state in states.values()):
        await load_visible_revisions(connection, generation.name, states)
        await amendments.load_statements(connection, events, states)
    return [preview for _, preview in (_decide(event, states, generation) for event in events)]


async def commit_chains(
    connection: Connection, generation: Generation, documents: Sequence[ChainedDocument]
) -> set[UUID]:
    """Commit documents; return the received ids of those that have changed since their preview.

    Raises ChainContradicted, MissingDocuments or an error of Postgres; roll back then.
    """
    # First of all, while the transaction has neither an id nor locks that others wait for.
    await share_visibility_lock(connection, generation.name)
    accepted = [
        ProjectedEvent(document.events[0].event, tuple(document.events[0].rows))
        for document in documents
    ]
    # A new document needs a row to lock.
    await add_stubs(connection, accepted)
    states, destroyed_keys = await lock_documents(
        connection, generation, OrderingPolicy.LATEST, accepted
    )
    await load_visible_revisions(connection, generation.name, states)
    await amendments.load_statements(connection, accepted, states)
    pending_keys = await _fetch_pending_keys(connection, generation, documents)
    verdicts: dict[UUID, Verdict] = {}
    for document, event in zip(documents, accepted, strict=True):
        verdict, preview = _decide(event, states, generation)
        if (
            preview == document.preview
            and event.event.key not in destroyed_keys
            and document.events[0].record.key not in pending_keys
        ):
            verdicts[document.received_id] = verdict
    was_done = {
        row["event_id"]: row["is_reaction_done"]
        for row in await connection.fetch(load_query("complete_ingress"), INGRESS, list(verdicts))
    }
    # A repeated call, or another worker: the document is committed already.
    new_documents = [
        document for document in documents if was_done.get(document.received_id) is False
    ]
    if new_documents:
        await _write(connection, generation, new_documents, verdicts, states)
    return {
        document.received_id
        for document in documents
        if document.received_id not in verdicts or document.received_id not in was_done
    }


async def _write(
    connection: Connection,
    generation: Generation,
    documents: Sequence[ChainedDocument],
    verdicts: Mapping[UUID, Verdict],
    states: States,
) -> None:
    events = list(chain.from_iterable(document.events for document in documents))
    positioned = dict(zip(map(id, events), await _append(connection, events), strict=True))
    await revision_rows.write_revisions(
        connection,
        [
            replace(verdicts[document.received_id], event=positioned[id(document.events[0])])
            for document in documents
        ],
        states,
    )
    await copy_rows(connection, generation.name, list(positioned.values()))
    changes = await activate_complete_revisions(
        connection,
        generation.name,
        INGRESS,
        [Verdict(event, ClaimStatus.PENDING) for event in positioned.values()],
        states,
    )
    if {change.document_id: change for change in changes.values()} != {
        document.visibility_change.document_id: document.visibility_change for document in documents
    }:
        raise ChainContradicted
    await _record_stages(connection, generation, events, positioned)
    # In this transaction, so that cached answers become invalid with its commit.
    await record_index_change(
        connection,
        ALL_GENERATIONS,
        [document.events[0].event.data.tenant for document in documents],
    )


async def _fetch_pending_keys(
    connection: Connection, generation: Generation, documents: Sequence[ChainedDocument]
) -> set[bytes]:
    """Return the record keys of documents with earlier events that wait for the ordinary path.

    A chain that overtook them would make other tables than a rebuild, which reads in log order.
    """
    accepted = documents[0].events[0]
    rows = await connection.fetch(
        load_query("pending_revisions"),
        [document.events[0].record.key for document in documents],
        accepted.groups[0],
        accepted.timings[0].stage,
        generation.name,
    )
    return {row["key"] for row in rows}


async def _append(connection: Connection, events: Sequence[ChainedEvent]) -> list[ProjectedEvent]:
    """Append the events and return them with their positions and rows."""
    records = [event.record for event in events]
    offsets = await connection.fetchval(
        load_query("append_events"),
        [record.topic for record in records],
        [record.key for record in records],
        [encode_headers(record.headers) for record in records],
        [record.value for record in records],
        [",".join(event.groups) or None for event in events],
    )
    return [
        ProjectedEvent(
            replace(event.event, position=Position(event.record.topic, 0, offset)),
            tuple(event.rows),
        )
        for event, offset in zip(events, offsets, strict=True)
    ]


async def _record_stages(
    connection: Connection,
    generation: Generation,
    events: Sequence[ChainedEvent],
    positioned: Mapping[int, ProjectedEvent],
) -> None:
    rows = []
    for event in events:
        data, position = event.event.data, positioned[id(event)].event.position
        assert position is not None
        rows += [
            (
                data.document_id,
                format_array(data.order),
                timing.stage,
                getattr(data, "part", 1),
                position.topic,
                position.partition,
                position.offset,
                timing.started_at,
                timing.duration_ms,
            )
            for timing in event.timings
        ]
    await connection.execute(
        load_query("record_chained_stages"), generation.name, *map(list, zip(*rows, strict=True))
    )


def _decide(
    event: ProjectedEvent, states: States, generation: Generation
) -> tuple[Verdict, RevisionPreview]:
    state: DocumentState = states[event.event.data.document_id]
    visible_order = state.visible_order
    verdict = decide_event(OrderingPolicy.LATEST, event, state, generation.how.get("transcribe"))
    return verdict, RevisionPreview(
        replace(verdict.result, amended_title=state.amended_title),
        visible_order,
        verdict.needs_write and verdict.revived_order is None,
    )
