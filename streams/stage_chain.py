"""Stage chaining: a small document passes all stages in memory and is committed at once.

The stages are those of the ordinary path, with the same events, ids and rows. Only the hand-over
differs: instead of appending each event, reading it again and claiming it, one transaction appends
all events of a document, writes the rows of all stages and completes the claim of ingress. Stream
processors call this operator chaining. It needs a log in the tables' database.

A chain runs on a preview of the document's state. The transaction checks under the locks that the
preview still holds. Whatever fails or cannot be predicted takes the ordinary path from ingress on,
which retries, reports and dead-letters.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any
from uuid import UUID

import structlog

from schemas.batching import CallBatcher, split_by_cost
from schemas.errors import EngineUnavailable, FatalError, TransientError
from schemas.events import DocumentAccepted, Event
from schemas.ports.ledger import (
    ChainedDocument,
    ChainedEvent,
    ChainLedger,
    ClaimStatus,
    OrderingPolicy,
    ProjectedEvent,
    RevisionPreview,
    StageTiming,
    VisibilityChange,
)
from schemas.ports.stage_ports import StagePorts
from schemas.rows import ChildRow, PartCompletedRow, Row
from schemas.topics import Record
from streams.chained_records import ChainedRecords
from streams.publisher import Publisher
from streams.runner import StageRunner, WorkItem
from streams.stage import Emission, PendingEvent, Stage

log = structlog.get_logger(__name__)
MAX_DOCUMENT_BYTES = 32 * 1024
"""Larger documents gain little: most of their cost is that of their chunks."""
MAX_BATCH_BYTES = 64 * 1024
DEADLINE_S = 60.0
PAUSE_S = 10.0
"""How long all documents take the ordinary path, which waits for engines, after an outage."""
UNCHAINED_MEDIA_TYPES = ("image/", "application/pdf")
"""OCR and page layout take longer than everything that chaining saves."""
VISIBLE_PART_KINDS = ("chunks", "vectors")
"""Parts that make a revision visible when they are complete."""


@dataclass(frozen=True, slots=True)
class ChainLink:
    """A consumer of the ordinary path: its stage, topic and group, and who emits in its place."""

    stage: Stage
    topic: str
    group: str
    publisher: Publisher


@dataclass(slots=True)
class _Revision:
    """A revision on its way through the chain."""

    received_id: UUID
    preview: RevisionPreview
    events: list[ChainedEvent]
    chunk_ids: set[UUID] = field(default_factory=set)
    parts: dict[str, set[int]] = field(default_factory=dict)
    part_counts: dict[str, int] = field(default_factory=dict)
    visibility_change: VisibilityChange | None = None

    def add_rows(self, event: ChainedEvent, rows: Sequence[Row]) -> None:
        event.rows.extend(rows)
        for row in rows:
            if isinstance(row, ChildRow):
                self.chunk_ids.add(row.id)
            elif isinstance(row, PartCompletedRow):
                self.parts.setdefault(row.kind, set()).add(row.part)
                self.part_counts[row.kind] = row.parts

    def complete(self) -> VisibilityChange | None:
        """Return the visibility change, once, if all parts are complete."""
        if self.visibility_change is not None or any(
            len(self.parts.get(kind, ())) < self.part_counts.get(kind, 1)
            for kind in VISIBLE_PART_KINDS
        ):
            return None
        data = self.events[0].event.data
        self.visibility_change = VisibilityChange(
            data.document_id, tuple(data.order), len(self.chunk_ids), self.preview.visible_order
        )
        return self.visibility_change


@dataclass(frozen=True, slots=True)
class _Admission:
    """A document that ingress has admitted, as its event and record."""

    received_id: UUID
    accepted: Event[DocumentAccepted]
    record: Record


@dataclass(eq=False)
class StageChain:
    """Runs the stages behind ingress. `links` are in the order of the stages, upstream first.

    The first link is the one that decides about revisions.
    """

    links: Sequence[ChainLink]
    ledger: ChainLedger
    ports: StagePorts
    chained_records: ChainedRecords | None = None
    """Set if the log is not in the tables' database: events are then published before the commit.
    """
    _batcher: CallBatcher[_Admission, ChainedDocument | None] = field(init=False)
    _groups: Mapping[str, Sequence[str]] = field(init=False)

    def __post_init__(self) -> None:
        assert self.links[0].stage.ordering_policy is OrderingPolicy.LATEST
        self._batcher = CallBatcher(self._run_batch)
        self._groups = {
            topic: tuple(link.group for link in self.links if link.topic == topic)
            for topic in {link.topic for link in self.links}
        }

    async def run(
        self, received_id: UUID, emission: Emission, publisher: Publisher
    ) -> ChainedDocument | None:
        """Run one document through all stages; None if its effect cannot be predicted.

        Documents that arrive meanwhile form the next batch. Raises whatever a stage raises.
        """
        accepted = publisher.build_event(emission)
        record = self._mark(received_id, await publisher.encode(accepted))
        key_id = record.headers.get("ce_keyid")
        # The key that sealed this event seals all that follow from it.
        accepted = replace(accepted, key=UUID(key_id.decode()) if key_id else None)
        return await self._batcher.run(_Admission(received_id, accepted, record))

    async def _run_batch(self, admissions: Sequence[_Admission]) -> list[ChainedDocument | None]:
        documents: list[ChainedDocument | None] = []
        for part in split_by_cost(
            admissions, lambda admission: admission.accepted.data.blob.size, MAX_BATCH_BYTES
        ):
            try:
                async with asyncio.timeout(DEADLINE_S):
                    documents += await self._run_part(part)
            except TimeoutError as error:
                raise EngineUnavailable(f"A chain took longer than {DEADLINE_S:g} s.") from error
        return documents

    async def _run_part(self, admissions: Sequence[_Admission]) -> list[ChainedDocument | None]:
        revisions = await self._start_revisions(admissions)
        for link in self.links:
            await self._run_link(link, list(revisions.values()))
        return [
            ChainedDocument(
                revision.received_id,
                revision.events,
                revision.preview,
                revision.visibility_change,
            )
            if (revision := revisions.get(admission.received_id)) is not None
            and revision.visibility_change is not None
            else None
            for admission in admissions
        ]

    async def _start_revisions(self, admissions: Sequence[_Admission]) -> dict[UUID, _Revision]:
        """Return the revisions that will certainly be processed, by received id."""
        # The second revision of a document depends on the first one's effect.
        first_by_document: dict[UUID, _Admission] = {}
        for admission in admissions:
            first_by_document.setdefault(admission.accepted.data.document_id, admission)
        firsts, project = list(first_by_document.values()), self.links[0].stage.project
        previews = await self.ledger.preview_revisions(
            [
                ProjectedEvent(admission.accepted, tuple(project(admission.accepted)))
                for admission in firsts
            ]
        )
        return {
            admission.received_id: _Revision(
                admission.received_id,
                preview,
                [self._make_event(admission.accepted, admission.record)],
            )
            for admission, preview in zip(firsts, previews, strict=True)
            if preview.is_new
            and preview.result.status is ClaimStatus.PENDING
            and not preview.result.is_unchanged
        }

    async def _run_link(self, link: ChainLink, revisions: Sequence[_Revision]) -> None:
        clock = asyncio.get_running_loop().time
        started_at, started_s = link.publisher.clock(), clock()
        revision_by_event: dict[UUID, _Revision] = {}
        inputs: list[ChainedEvent] = []
        pending_events: list[PendingEvent] = []
        for revision in revisions:
            events = [event for event in revision.events if event.record.topic == link.topic]
            for event in events:
                revision.add_rows(event, tuple(link.stage.project(event.event)))
                revision_by_event[event.event.id] = revision
            pending = [
                PendingEvent(
                    event.event,
                    ClaimStatus.PENDING,
                    amended_title=revision.preview.result.amended_title,
                )
                for event in events
            ]
            # The change belongs to the last event that completes a part.
            if pending and (change := revision.complete()) is not None:
                pending[-1] = replace(pending[-1], visibility_change=change)
            inputs += events
            pending_events += pending
        for emission in await self._react(link, pending_events):
            emitted = link.publisher.build_event(emission)
            revision = revision_by_event[emission.cause.id]
            record = self._mark(revision.received_id, await link.publisher.encode(emitted))
            revision.events.append(self._make_event(emitted, record))
        duration_ms = (clock() - started_s) * 1000
        for event in inputs:
            event.timings.append(StageTiming(link.stage.name, started_at, duration_ms))

    async def _react(
        self, link: ChainLink, pending_events: Sequence[PendingEvent]
    ) -> list[Emission]:
        if link.stage.react is None or not pending_events:
            return []
        size = link.stage.batch_size
        emissions = await asyncio.gather(
            *(
                link.stage.react(pending_events[start : start + size], self.ports)
                for start in range(0, len(pending_events), size)
            )
        )
        return [emission for batch in emissions for emission in batch]

    def _mark(self, received_id: UUID, record: Record) -> Record:
        """Name the chain in a record that its consumers would else process a second time."""
        if self.chained_records is None or record.topic not in self._groups:
            return record
        return self.chained_records.mark(received_id, record)

    def _make_event(self, event: Event[Any], record: Record) -> ChainedEvent:
        return ChainedEvent(event, record, self._groups.get(record.topic, ()))


@dataclass(frozen=True, slots=True)
class _Turn:
    """The event of a document that has left its reaction and is not published yet."""

    item: WorkItem
    ended: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(eq=False)
class ChainedRunner(StageRunner):
    """Runs ingress, and the whole chain where it can.

    `is_ready` returns whether the tables of the chain's generation exist. `on_published` is called
    with the records that the transaction of a chain has appended.
    """

    chain: StageChain = field(kw_only=True)
    is_ready: Callable[[], bool] = field(kw_only=True)
    on_published: Callable[[Sequence[Record]], None] = field(kw_only=True)
    pause_s: float = field(default=PAUSE_S, kw_only=True)
    _paused_until_s: float = field(default=0.0, init=False)
    _turns: dict[UUID, _Turn] = field(default_factory=dict, init=False)
    _documents: dict[WorkItem, UUID] = field(default_factory=dict, init=False)
    _commits: CallBatcher[ChainedDocument, Sequence[Record] | None] = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._commits = CallBatcher(self._publish_and_commit)

    async def chain_stages(self, items: Sequence[WorkItem]) -> None:
        await asyncio.gather(*(self._run_chain(item) for item in items))

    async def finish(self, items: Sequence[WorkItem]) -> None:
        try:
            remaining = await self._commit(items)
            if remaining:
                await super().finish(remaining)
        finally:
            self._end_turns(items)

    async def release(self, items: Iterable[WorkItem]) -> None:
        items = list(items)
        self._end_turns(items)
        await super().release(items)

    async def _run_chain(self, item: WorkItem) -> None:
        if (document_id := _get_document_id(item)) is None:
            return
        # Events of a document leave ingress in the order in which they were admitted: a withdrawal
        # must not overtake the revision whose chain runs.
        while (turn := self._turns.get(document_id)) is not None:
            await turn.ended.wait()
        self._turns[document_id] = _Turn(item)
        self._documents[item] = document_id
        if self._is_chainable(item):
            await self._run_stages(item)

    def _end_turns(self, items: Iterable[WorkItem]) -> None:
        for item in items:
            # Not by its emissions, which a dead letter clears.
            if (document_id := self._documents.pop(item, None)) is not None:
                self._turns.pop(document_id).ended.set()

    def _is_chainable(self, item: WorkItem) -> bool:
        data = item.emissions[0].data
        return (
            self.is_ready()
            and isinstance(data, DocumentAccepted)
            and data.blob.size <= MAX_DOCUMENT_BYTES
            and not (data.media_type or "").startswith(UNCHAINED_MEDIA_TYPES)
            # A worker died with it before: the ordinary path finds the stage that is at fault.
            and item.abandoned_attempts == 0
            and asyncio.get_running_loop().time() >= self._paused_until_s
        )

    async def _run_stages(self, item: WorkItem) -> None:
        assert item.pending_event is not None
        try:
            chained = await self.chain.run(
                item.pending_event.event.id, item.emissions[0], self.publisher
            )
            item.chained = chained and replace(chained, delivery=item.delivery)
        except FatalError:
            raise
        # The ordinary path meets every other error again, and handles it.
        except Exception as error:
            if isinstance(error, TransientError):
                self._paused_until_s = asyncio.get_running_loop().time() + self.pause_s
            log.debug(
                "chain_abandoned", event_id=str(item.pending_event.event.id), error=repr(error)
            )

    async def _commit(self, items: Sequence[WorkItem]) -> list[WorkItem]:
        """Commit chains; return the items that have anything to publish or to complete."""
        chained = [item.chained for item in items if item.chained is not None]
        if self.chain.chained_records is None:
            owed = await self._commit_chains(chained)
        else:
            # Together with what the other partitions have finished.
            results = await self._retry_outages(
                lambda: asyncio.gather(*map(self._commits.run, chained))
            )
            owed = {
                document.received_id: records
                for document, records in zip(chained, results, strict=True)
                if records is not None
            }
        remaining = []
        for item in items:
            if item.chained is not None and item.chained.received_id in owed:
                item.owed_records = owed[item.chained.received_id]
                if not item.owed_records:
                    self._open_attempts.forget([item.chained.received_id])
                    self.instrumentation.count_finished(self.stage.name, None)
                    continue
            remaining.append(item)
        return remaining

    async def _publish_and_commit(
        self, documents: Sequence[ChainedDocument]
    ) -> list[Sequence[Record] | None]:
        """Commit chains on a log outside of the tables' database; return the records that each owes
        the log, or None for one that takes the ordinary path.
        """
        assert self.chain.chained_records is not None
        received_ids = [document.received_id for document in documents]
        with self.chain.chained_records.run(received_ids) as is_committed:
            owed = await self._commit_chains(documents)
            is_committed |= dict.fromkeys(owed, True)
        return [owed.get(received_id) for received_id in received_ids]

    async def _commit_chains(
        self, documents: Sequence[ChainedDocument]
    ) -> Mapping[UUID, Sequence[Record]]:
        if not documents:
            return {}
        is_in_tables = self.chain.chained_records is None
        owed = await self._retry_outages(
            lambda: self.chain.ledger.commit_chains(
                documents, None if is_in_tables else self.event_log.append
            )
        )
        committed = [document for document in documents if document.received_id in owed]
        events = [event for document in committed for event in document.events]
        if is_in_tables:
            self.on_published([event.record for event in events])
        for timing in chain.from_iterable(event.timings for event in events):
            self.instrumentation.count_finished(timing.stage, None)
            self.instrumentation.observe_duration(timing.stage, timing.duration_ms / 1000)
        return owed


def _get_document_id(item: WorkItem) -> UUID | None:
    """Return the document that ingress has admitted with this item."""
    return getattr(item.emissions[0].data, "document_id", None) if item.emissions else None
