"""The claim transaction: claim events, decide which take effect, and write their rows.

The order of its steps matters: the visibility lock first (the transaction has no id yet, so the
log's readers do not wait for it), then the documents' locks in id order, then every read that a
decision depends on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from schemas.generations import Generation
from schemas.ports.ledger import (
    ClaimResult,
    ClaimStatus,
    OrderingPolicy,
    ProjectedEvent,
    VisibilityChange,
)
from schemas.topics import is_repeat
from sql.database import Connection, format_array, load_query
from sql.inbox import amendments
from sql.inbox.document_state import (
    activate_complete_revisions,
    add_stubs,
    archive_late_texts,
    collect_tenants,
    collect_withdrawals,
    fetch_revived_revisions,
    has_completing_parts,
    load_visible_revisions,
    lock_documents,
    withdraw_revisions,
    write_revisions,
)
from sql.inbox.entries import (
    ERASED_PAYLOAD,
    InboxEntry,
    claim_events,
    record_redelivery,
    record_revived_revisions,
    record_visibility_changes,
)
from sql.inbox.revision_policy import States, Verdict, decide_event
from sql.inbox.shared_rows import write_shared_rows
from sql.index.generation_switch import share_visibility_lock
from sql.invalidation import ALL_GENERATIONS, record_index_change
from sql.operations.keystore import fetch_destroyed_keys

SHARED_GENERATION = ""
"""Generation of claims that are shared by all generations."""


InboxEntries = Mapping[UUID, InboxEntry]
"""Claims that are known to exist.

A claim outside of this mapping that exists all the same raises ClaimCollision; the transaction then
restarts with it.
"""
RowWriter = Callable[[Connection, str, Sequence[ProjectedEvent]], Awaitable[None]]


async def claim_shared(
    connection: Connection,
    stage: str,
    ordering: OrderingPolicy,
    events: Sequence[ProjectedEvent],
    known_entries: InboxEntries,
) -> list[ClaimResult]:
    """Claim events of ingress and of shared stages, where only the claim decides."""
    erased_results = _find_erased(
        events,
        await fetch_destroyed_keys(
            connection, {event.event.key for event in events if event.event.key is not None}
        ),
    )
    # Before the new claims, whose first attempt the insert itself records.
    redelivered = await record_redelivery(connection, SHARED_GENERATION, stage, known_entries)
    new_events = _select_new(events, known_entries.keys() | erased_results.keys())
    if new_events:
        await claim_events(
            connection,
            SHARED_GENERATION,
            stage,
            ordering,
            [Verdict(event, ClaimStatus.PENDING) for event in new_events],
        )
        # After the claims: a collision rolls back before anything is written.
        await write_shared_rows(connection, [row for event in new_events for row in event.rows])
    entries = {
        **{
            identity: replace(entry, result=redelivered.get(identity, entry.result))
            for identity, entry in known_entries.items()
        },
        **{
            event.event.id: InboxEntry(
                ClaimResult(ClaimStatus.PENDING), event.event.payload_sha256, event.event.position
            )
            for event in new_events
        },
    }
    results = []
    # Per event, not per id: a batch may contain two payloads under the same id.
    for event in events:
        if event.event.id in erased_results:
            results.append(erased_results[event.event.id])
        elif ordering == OrderingPolicy.ONCE_PER_ID:
            results.append(_resolve_ingress_claim(event, entries[event.event.id]))
        else:
            results.append(entries[event.event.id].result)
    return results


async def claim_documents(
    connection: Connection,
    generation: Generation,
    stage: str,
    ordering: OrderingPolicy,
    events: Sequence[ProjectedEvent],
    known_entries: InboxEntries,
    write_rows: RowWriter,
) -> list[ClaimResult]:
    """Claim events of documents under the documents' locks.

    Raises MissingDocuments or ClaimCollision; roll back and start over.
    """
    # First of all, while the transaction has neither an id nor locks that others wait for.
    if ordering == OrderingPolicy.VISIBLE and has_completing_parts(events):
        await share_visibility_lock(connection, generation.name)
    # A new document needs a row to lock.
    if ordering == OrderingPolicy.LATEST:
        await add_stubs(connection, events)
    # Every decision below reads under these locks.
    states, destroyed_keys = await lock_documents(connection, generation, ordering, events)
    if ordering == OrderingPolicy.LATEST:
        await load_visible_revisions(connection, generation.name, states)
        # Under the locks, which exclude concurrent amendments of these documents.
        await amendments.load_statements(connection, events, states)
    await record_redelivery(connection, generation.name, stage, known_entries)
    results = {identity: entry.result for identity, entry in known_entries.items()}
    batch = _RevisionBatch(connection, generation, stage, ordering, states, write_rows)
    # Under the locks. An erasure takes them before it deletes rows, so a worker that decrypted the
    # event just before cannot write after the deletion.
    erased_results = _find_erased(events, destroyed_keys)
    new_events = _select_new(events, known_entries.keys() | erased_results.keys())
    # Sequentially: each group decides on the state that the groups before it left.
    for group in _split_batches(new_events):
        results |= await batch.claim(group)
    # In this transaction, so that cached answers become invalid with its commit.
    if changing_events := _find_changing(new_events, ordering, states):
        await record_index_change(
            connection,
            ALL_GENERATIONS if ordering == OrderingPolicy.LATEST else generation.name,
            collect_tenants(changing_events).values(),
        )
    # Last, so that an erased event is done whatever an older claim says.
    results |= erased_results
    if ordering == OrderingPolicy.LATEST:
        results |= await _attach_revived(connection, generation.name, stage, results)
        titles = {
            event.event.id: states[event.event.data.document_id].amended_title for event in events
        }
        results |= {
            identity: replace(results[identity], amended_title=title)
            for identity, title in titles.items()
            if title is not None
        }
    return [results[event.event.id] for event in events]


def _find_changing(
    events: Sequence[ProjectedEvent], ordering: OrderingPolicy, states: States
) -> list[ProjectedEvent]:
    """Return the events with rows that answers may show."""
    return [
        event
        for event in events
        if event.rows
        # Rows above the visible revision are in no answer.
        and (
            ordering == OrderingPolicy.LATEST
            or tuple(event.event.data.order)
            <= (states[event.event.data.document_id].visible_order or ())
        )
    ]


@dataclass(frozen=True, slots=True)
class _RevisionBatch:
    """Claims a batch of events in which each document has at most one revision."""

    connection: Connection
    generation: Generation
    stage: str
    ordering: OrderingPolicy
    states: States
    write_rows: RowWriter

    async def claim(self, events: Sequence[ProjectedEvent]) -> dict[UUID, ClaimResult]:
        # Decide, then claim, then write: a collision is found before any row of the group.
        verdicts = [
            decide_event(
                self.ordering,
                event,
                self.states[event.event.data.document_id],
                self.generation.how.get("transcribe"),
            )
            for event in events
        ]
        finished_ids = await self._find_finished(verdicts)
        finished_results = {identity: ClaimResult(ClaimStatus.DONE) for identity in finished_ids}
        verdicts = [verdict for verdict in verdicts if verdict.event.event.id not in finished_ids]
        if not verdicts:
            return finished_results
        await claim_events(
            self.connection, self.generation.name, self.stage, self.ordering, verdicts
        )
        visibility_changes = await (
            self._write_revisions(verdicts)
            if self.ordering == OrderingPolicy.LATEST
            else self._write_parts(verdicts)
        )
        return finished_results | {
            verdict.event.event.id: replace(
                verdict.result, visibility_change=visibility_changes.get(verdict.event.event.id)
            )
            for verdict in verdicts
        }

    async def _find_finished(self, verdicts: Sequence[Verdict]) -> set[UUID]:
        """Return superseded events that the stage has finished before, without a claim left.

        Their document has its outcome already: "superseded" would contradict it.
        """
        superseded = [
            verdict.event.event
            for verdict in verdicts
            if verdict.claim is ClaimStatus.SUPERSEDED and verdict.revived_order is None
        ]
        if not superseded:
            return set()
        rows = await self.connection.fetch(
            load_query("finished_events"),
            self.generation.name,
            self.stage,
            [event.id for event in superseded],
            [event.data.document_id for event in superseded],
            [format_array(event.data.order) for event in superseded],
            [getattr(event.data, "part", 1) for event in superseded],
            [event.data.origin.accepted_id for event in superseded],
        )
        return {row["event_id"] for row in rows}

    async def _write_revisions(self, verdicts: Sequence[Verdict]) -> dict[UUID, VisibilityChange]:
        await write_revisions(self.connection, verdicts, self.states)
        if withdrawn_orders := collect_withdrawals(verdicts):
            # A withdrawal applies to every generation, not only to the one that reads it.
            rows = await self.connection.fetch(load_query("undropped_names"))
            await withdraw_revisions(
                self.connection, [row["name"] for row in rows], withdrawn_orders
            )
        visibility_changes = {
            verdict.event.event.id: verdict.visibility_change
            for verdict in verdicts
            if verdict.visibility_change
        }
        await record_visibility_changes(
            self.connection, self.generation.name, self.stage, visibility_changes
        )
        revived_orders = {
            verdict.event.event.id: verdict.revived_order
            for verdict in verdicts
            if verdict.revived_order
        }
        await record_revived_revisions(
            self.connection, self.generation.name, self.stage, revived_orders
        )
        return visibility_changes

    async def _write_parts(self, verdicts: Sequence[Verdict]) -> dict[UUID, VisibilityChange]:
        await self.write_rows(
            self.connection,
            self.generation.name,
            [verdict.event for verdict in verdicts if verdict.claim is ClaimStatus.PENDING],
        )
        await archive_late_texts(
            self.connection,
            [
                verdict
                for verdict in verdicts
                if not self.states[verdict.event.event.data.document_id].is_erased
            ],
        )
        return await activate_complete_revisions(
            self.connection, self.generation.name, self.stage, verdicts, self.states
        )


def _find_erased(
    events: Sequence[ProjectedEvent], destroyed_keys: Collection[UUID]
) -> dict[UUID, ClaimResult]:
    """Return DONE for events whose key was destroyed: none of their rows may be written."""
    return {
        event.event.id: ClaimResult(ClaimStatus.DONE)
        for event in events
        if event.event.key in destroyed_keys
    }


async def _attach_revived(
    connection: Connection, generation: str, stage: str, results: Mapping[UUID, ClaimResult]
) -> dict[UUID, ClaimResult]:
    """Return the results of late withdrawals together with the revisions that they revived."""
    late_withdrawals = [
        identity
        for identity, claimed in results.items()
        # A withdrawal that revived a revision is itself superseded by that revision.
        if claimed.status is ClaimStatus.SUPERSEDED
    ]
    revived_rows = (
        await fetch_revived_revisions(connection, generation, stage, late_withdrawals)
        if late_withdrawals
        else {}
    )
    return {
        identity: replace(results[identity], revived_revision=row)
        for identity, row in revived_rows.items()
    }


def _resolve_ingress_claim(event: ProjectedEvent, entry: InboxEntry) -> ClaimResult:
    # An erased event is not admitted again by a replay.
    if entry.payload_sha256 == ERASED_PAYLOAD:
        return ClaimResult(ClaimStatus.DONE)
    # The first payload under an id wins; another one becomes a dead letter.
    if entry.payload_sha256 != event.event.payload_sha256:
        return ClaimResult(ClaimStatus.DUPLICATE)
    return (
        ClaimResult(ClaimStatus.DONE)
        if is_repeat(event.event.position, entry.position)
        else entry.result
    )


def _select_new(
    events: Sequence[ProjectedEvent], decided: Collection[UUID]
) -> list[ProjectedEvent]:
    """Return the events that are not decided yet, without duplicates."""
    new_by_id: dict[UUID, ProjectedEvent] = {}
    for event in events:
        if event.event.id not in decided:
            new_by_id.setdefault(event.event.id, event)
    return list(new_by_id.values())


def _split_batches(events: Sequence[ProjectedEvent]) -> Iterator[list[ProjectedEvent]]:
    """Split events wherever a document appears with another order.

    Revisions of one document are then decided one after the other, as if each had arrived alone.
    """
    batch: list[ProjectedEvent] = []
    orders: dict[UUID, list[int]] = {}
    for event in events:
        data = event.event.data
        if orders.setdefault(data.document_id, data.order) != data.order:
            yield batch
            batch, orders = [], {data.document_id: data.order}
        batch.append(event)
    if batch:
        yield batch
