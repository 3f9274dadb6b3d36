"""In-memory ledger and memo for tests of stages and the runtime.

The ledger passes the same contract suite as the tables and decides by the same revision policy.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from schemas.amendments import OrderKey
from schemas.events import EventDeadLettered
from schemas.generations import Generation
from schemas.ports.ledger import (
    ATTEMPTS_RECORDED_BY_CLAIM,
    ClaimResult,
    ClaimStatus,
    MemoKey,
    OrderingPolicy,
    ProjectedEvent,
    VisibilityChange,
)
from schemas.rows import (
    ChildRow,
    DocumentRow,
    EventRow,
    PartCompletedRow,
    Row,
    TextRow,
    WithdrawalRow,
)
from schemas.topics import Position, is_repeat
from sql.inbox.revision_policy import (
    DocumentState,
    Verdict,
    VisibleRevision,
    build_fields,
    decide_event,
)


@dataclass(slots=True)
class _InboxEntry:
    claim_result: ClaimResult
    payload_sha256: str
    position: Position | None
    has_reacted: bool = False
    open_attempts: int = 1


@dataclass(slots=True)
class MemoryLedger:
    """A `Ledger` of one generation in dictionaries."""

    generation: Generation
    documents: dict[UUID, DocumentState] = field(default_factory=dict)
    revisions: dict[UUID, list[tuple[DocumentRow, bool]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """Accepted revisions of each document in order, each with whether it was forced."""
    inbox: dict[tuple[str, UUID], _InboxEntry] = field(default_factory=dict)
    rows: dict[tuple[Any, ...], Row] = field(default_factory=dict)
    dead_letters: dict[tuple[str, UUID], EventDeadLettered] = field(default_factory=dict)
    pipeline_fingerprints: dict[tuple[UUID, OrderKey], str | None] = field(default_factory=dict)

    @property
    def visible_orders(self) -> dict[UUID, OrderKey]:
        return {
            document_id: state.visible_order
            for document_id, state in self.documents.items()
            if state.visible_order is not None
        }

    async def claim(
        self, stage: str, ordering: OrderingPolicy, events: Sequence[ProjectedEvent]
    ) -> list[ClaimResult]:
        return [self._claim_event(stage, ordering, projected) for projected in events]

    async def record_attempt(self, stage: str, event_ids: Sequence[UUID]) -> None:
        for event_id in event_ids:
            self.inbox[stage, event_id].open_attempts += 1

    async def withdraw_attempt(self, stage: str, event_ids: Sequence[UUID]) -> None:
        for event_id in event_ids:
            self.inbox[stage, event_id].open_attempts = max(
                0, self.inbox[stage, event_id].open_attempts - 1
            )

    async def complete(
        self, stage: str, completed: Sequence[UUID], dead_letters: Sequence[EventDeadLettered]
    ) -> None:
        for event_id in (
            *completed,
            *(dead_letter_data.event_id for dead_letter_data in dead_letters),
        ):
            if (stage, event_id) in self.inbox:
                self.inbox[stage, event_id].has_reacted = True
        self.dead_letters |= {
            (stage, dead_letter_data.event_id): dead_letter_data
            for dead_letter_data in dead_letters
        }

    async def prune(self, stage: str, topic: str, partition: int, before_offset: int) -> None:
        """Do nothing: memory is small enough."""

    def _claim_event(
        self, stage: str, ordering_policy: OrderingPolicy, projected: ProjectedEvent
    ) -> ClaimResult:
        event = projected.event
        entry = self.inbox.get((stage, event.id))
        if entry is not None:
            if (
                ordering_policy == OrderingPolicy.ONCE_PER_ID
                and entry.payload_sha256 != event.payload_sha256
            ):
                return ClaimResult(ClaimStatus.DUPLICATE)
            if ordering_policy == OrderingPolicy.ONCE_PER_ID and is_repeat(
                event.position, entry.position
            ):
                return ClaimResult(ClaimStatus.DONE)
            if entry.has_reacted:
                return replace(entry.claim_result, status=ClaimStatus.DONE, revived_revision=None)
            # The count before this claim: it reports the attempts that others left open.
            abandoned_attempts = entry.open_attempts
            entry.open_attempts += abandoned_attempts < ATTEMPTS_RECORDED_BY_CLAIM
            return replace(entry.claim_result, abandoned_attempts=abandoned_attempts)
        claim_result = self._apply_ordering_policy(ordering_policy, projected)
        self.inbox[stage, event.id] = _InboxEntry(
            claim_result, event.payload_sha256, event.position
        )
        return claim_result

    def _apply_ordering_policy(
        self, ordering_policy: OrderingPolicy, projected: ProjectedEvent
    ) -> ClaimResult:
        if ordering_policy in (OrderingPolicy.ALWAYS, OrderingPolicy.ONCE_PER_ID):
            self._insert_rows(projected.rows)
            return ClaimResult(ClaimStatus.PENDING)
        document_id = projected.event.data.document_id
        state = self.documents.setdefault(
            document_id, DocumentState(None, None, 0, None, statements=[])
        )
        state.visible_revision = self._load_visible_revision(document_id)
        verdict = decide_event(
            ordering_policy, projected, state, self.generation.how.get("transcribe")
        )
        if ordering_policy == OrderingPolicy.LATEST:
            return self._write_revision(verdict, state)
        if verdict.claim is ClaimStatus.SUPERSEDED:
            return verdict.result
        self._insert_rows(projected.rows)
        for row in projected.rows:
            if isinstance(row, TextRow):
                self.pipeline_fingerprints[row.document_id, row.order] = (
                    projected.event.pipeline_fingerprint
                )
        return replace(
            verdict.result,
            visibility_change=self._activate_if_complete(
                document_id, tuple(projected.event.data.order), projected.rows
            ),
        )

    def _write_revision(self, verdict: Verdict, state: DocumentState) -> ClaimResult:
        [row] = verdict.event.rows
        revived_revision = None
        if verdict.needs_write and isinstance(row, DocumentRow):
            self.revisions[row.document_id].append((row, verdict.event.event.data.force))
        if verdict.needs_write and isinstance(row, WithdrawalRow):
            self._remove_older(row.document_id, row.order)
            revived_revision = next(
                (
                    revision
                    for revision, _ in self.revisions[row.document_id]
                    if revision.order == verdict.revived_order
                ),
                None,
            )
        return replace(
            verdict.result, revived_revision=revived_revision, amended_title=state.amended_title
        )

    def _load_visible_revision(self, document_id: UUID) -> VisibleRevision | None:
        order = self.documents[document_id].visible_order
        if order is None:
            return None
        revisions = self.revisions[document_id]
        row = next((row for row, _ in revisions if row.order == order), None)
        visible_revision = VisibleRevision(
            row and row.content_sha256,
            self.pipeline_fingerprints.get((document_id, order)),
            row and build_fields(row),
            unchanged_until=order,
        )
        for later_row, is_forced in revisions:
            if later_row.order > order:
                visible_revision.add_later(later_row, is_forced=is_forced)
        return visible_revision

    def _activate_if_complete(
        self, document_id: UUID, order: OrderKey, rows: Sequence[Row]
    ) -> VisibilityChange | None:
        state = self.documents[document_id]
        if not any(isinstance(row, PartCompletedRow) for row in rows) or order <= (
            state.visible_order or ()
        ):
            return None
        settled_rows = [
            row
            for key, row in self.rows.items()
            if isinstance(row, PartCompletedRow) and key[1:3] == (document_id, order)
        ]
        expected_counts = {
            kind: next((row.parts for row in settled_rows if row.kind == kind), None)
            for kind in ("chunks", "vectors")
        }
        if any(
            # A kind without any part is incomplete: its number of parts is unknown.
            total is None or sum(row.kind == kind for row in settled_rows) < total
            for kind, total in expected_counts.items()
        ):
            return None
        previous_order, state.visible_order = state.visible_order, order
        self._remove_older(document_id, order)
        state.chunks = sum(
            isinstance(row, ChildRow)
            for key, row in self.rows.items()
            if key[1:3] == (document_id, order)
        )
        return VisibilityChange(document_id, order, state.chunks, previous_order)

    def _remove_older(self, document_id: UUID, order: OrderKey) -> None:
        """Remove the rows of older revisions. Rows without an order, such as dead letters, stay."""
        self.rows = {
            key: row
            for key, row in self.rows.items()
            if key[1] != document_id or key[2] is None or key[2] >= order
        }

    def _insert_rows(self, rows: Sequence[Row]) -> None:
        for row in rows:
            # Like `on conflict do nothing`: a redelivered event writes nothing.
            self.rows.setdefault(_build_row_key(row), row)


def _build_row_key(row: Row) -> tuple[Any, ...]:
    """Build a key: row class, document, order, then the columns that distinguish rows of that
    class.
    """
    if isinstance(row, EventRow):
        return (type(row.data).__name__, row.data.model_dump_json(), row.offset)
    document_id, order = getattr(row, "document_id", None), getattr(row, "order", None)
    distinguishing_values = (
        (row.kind, row.part)
        if isinstance(row, PartCompletedRow)
        else tuple(
            filter(
                None,
                (getattr(row, name, None) for name in ("id", "chunk_id", "event_id", "run_id")),
            )
        )
    )
    return (type(row).__name__, document_id, order, *distinguishing_values)


@dataclass(slots=True)
class MemoryMemo:
    answers: dict[MemoKey, bytes] = field(default_factory=dict)

    async def fetch(self, keys: Sequence[MemoKey]) -> Mapping[MemoKey, bytes]:
        return {key: self.answers[key] for key in keys if key in self.answers}

    async def store(self, results: Mapping[MemoKey, bytes]) -> None:
        for key, answer in results.items():
            self.answers.setdefault(key, answer)
