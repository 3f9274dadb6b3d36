"""The transaction of chained documents: rows, activation and the claim of ingress at once, with the
events unless another log has them already.

Locks in the order of the claim transaction: visibility, documents, owners, inbox.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from schemas.generations import Generation
from schemas.ports.ledger import (
    AppendRecords,
    ChainedDocument,
    ChainedEvent,
    ClaimStatus,
    OrderingPolicy,
    ProjectedEvent,
    RevisionPreview,
)
from schemas.topics import Position, Record
from sql.database import Connection, format_array, load_query
from sql.inbox import amendments
from sql.inbox.document_state import (
    activate_complete_revisions,
    add_stubs,
    load_visible_revisions,
    lock_documents,
    read_documents,
    write_revisions,
)
from sql.inbox.entries import encode_owed
from sql.inbox.revision_policy import DocumentState, States, Verdict, decide_event
from sql.index.derived_tables import copy_rows
from sql.index.generation_switch import share_visibility_lock
from sql.invalidation import ALL_GENERATIONS, record_index_change
from sql.log.event_log import to_columns

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
    connection: Connection,
    generation: Generation,
    documents: Sequence[ChainedDocument],
    append: AppendRecords | None,
) -> dict[UUID, Sequence[Record]]:
    """See `schemas.ports.ledger.ChainLedger`.

    Raises ChainContradicted, MissingDocuments, what `append` raises or an error of Postgres; roll
    back then.
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
    owed_records = {
        document.received_id: tuple(
            event.record for event in document.events if append and not event.groups
        )
        for document in documents
    }
    in_turn_ids, chained_ids = await _find_in_turn(connection, generation, documents, states)
    verdicts = {
        document.received_id: verdict
        for document, event in zip(documents, accepted, strict=True)
        for verdict, preview in [_decide(event, states, generation)]
        if preview == document.preview
        and event.event.key not in destroyed_keys
        and document.received_id in in_turn_ids
    }
    was_done = {
        row["event_id"]: row["is_reaction_done"]
        for row in await connection.fetch(
            load_query("complete_ingress"),
            INGRESS,
            list(verdicts),
            generation.name,
            [encode_owed(owed_records[received_id]) for received_id in verdicts],
            [document.delivery for document in documents if document.received_id in verdicts],
        )
    }
    # Another worker has completed the others, or claimed their events again.
    if new_documents := [one for one in documents if was_done.get(one.received_id) is False]:
        await _write(connection, generation, new_documents, verdicts, states, append)
    return {
        received_id: () if was_done.get(received_id) else owed_records[received_id]
        # After a COMMIT without an answer, the call is repeated.
        for received_id in (*was_done, *chained_ids)
    }


async def _write(
    connection: Connection,
    generation: Generation,
    documents: Sequence[ChainedDocument],
    verdicts: Mapping[UUID, Verdict],
    states: States,
    append: AppendRecords | None,
) -> None:
    events = [
        event
        for document in documents
        for event in document.events
        # Outcomes are owed to a log outside of this database: others act on them.
        if append is None or event.groups
    ]
    positioned = dict(zip(map(id, events), await _append(connection, events, append), strict=True))
    await write_revisions(
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


async def _find_in_turn(
    connection: Connection,
    generation: Generation,
    documents: Sequence[ChainedDocument],
    states: States,
) -> tuple[set[UUID], set[UUID]]:
    """Return the received ids of documents whose other admitted events the tables show, and of
    those that are committed already.

    A chain that overtook an event would make other tables than a rebuild, which reads in log order.
    """
    by_document = {document.events[0].event.data.document_id: document for document in documents}
    rows = await connection.fetch(
        load_query("newest_admissions"),
        [document.events[0].event.data.tenant for document in by_document.values()],
        list(by_document),
        [document.received_id for document in by_document.values()],
        INGRESS,
        generation.name,
    )
    received_ids = {row["document_id"]: by_document[row["document_id"]].received_id for row in rows}
    return (
        {
            received_ids[row["document_id"]]
            for row in rows
            if row["is_newest"] and row["previous_id"] == states[row["document_id"]].accepted_id
        },
        # Also if another event was admitted since: a COMMIT without an answer is repeated later.
        {received_ids[row["document_id"]] for row in rows if row["is_chained"]},
    )


async def _append(
    connection: Connection, events: Sequence[ChainedEvent], append: AppendRecords | None
) -> list[ProjectedEvent]:
    """Append the events and return them with their positions and rows."""
    records = [event.record for event in events]
    if append is not None:
        positions = await append(records)
    else:
        offsets = await connection.fetchval(
            load_query("append_events"),
            *to_columns(records, [",".join(event.groups) or None for event in events]),
        )
        positions = [
            Position(record.topic, 0, offset)
            for record, offset in zip(records, offsets, strict=True)
        ]
    return [
        ProjectedEvent(replace(event.event, position=position), tuple(event.rows))
        for event, position in zip(events, positions, strict=True)
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
