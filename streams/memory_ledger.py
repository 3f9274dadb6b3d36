"""In-memory ledger and memo for tests of stages and the runtime.

Pass the same contract suite as the tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any
from uuid import UUID

from schemas.amendments import (
    AMENDABLE_FIELDS,
    FieldStatement,
    OrderKey,
    ResolvedFields,
    is_effective,
    resolve_amendments,
    stated_fields,
)
from schemas.events import Event, EventDeadLettered
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
from schemas.records import Position, is_repeat
from schemas.rows import (
    AmendmentRow,
    ChildRow,
    DocumentRow,
    PartCompletedRow,
    Row,
    TextRow,
    WithdrawalRow,
)


@dataclass(slots=True)
class _DocumentState:
    latest_order: OrderKey | None = None
    withdrawal_order: OrderKey | None = None
    revisions: list[tuple[DocumentRow, bool]] = field(default_factory=list)
    """Accepted revisions in order, each with whether it was forced."""
    statements: list[FieldStatement] = field(default_factory=list)
    """Field values stated by amendments and by all revisions, late ones included."""


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
    documents: dict[UUID, _DocumentState] = field(default_factory=dict)
    inbox: dict[tuple[str, UUID], _InboxEntry] = field(default_factory=dict)
    rows: dict[tuple[Any, ...], Row] = field(default_factory=dict)
    visible_revisions: dict[UUID, VisibilityChange] = field(default_factory=dict)
    dead_letters: dict[tuple[str, UUID], EventDeadLettered] = field(default_factory=dict)
    pipeline_fingerprints: dict[tuple[UUID, OrderKey], str | None] = field(default_factory=dict)

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
        document_id, order = projected.event.data.document_id, tuple(projected.event.data.order)
        state = self.documents.setdefault(document_id, _DocumentState())
        if ordering_policy == OrderingPolicy.LATEST:
            return self._apply_latest_policy(state, projected, order)
        if self._is_older(order, state.withdrawal_order) or self._is_older(
            order, self._get_visible_order(document_id)
        ):
            return ClaimResult(ClaimStatus.SUPERSEDED)
        self._insert_rows(projected.rows)
        self._store_fingerprint(projected)
        return ClaimResult(
            ClaimStatus.PENDING, self._activate_if_complete(document_id, order, projected.rows)
        )

    def _apply_latest_policy(
        self, state: _DocumentState, projected: ProjectedEvent, order: OrderKey
    ) -> ClaimResult:
        row = projected.rows[0]
        if isinstance(row, AmendmentRow):
            return self._apply_amendment(state, row)
        is_newest = self._is_later(order, state.latest_order) and self._is_later(
            order, state.withdrawal_order
        )
        if isinstance(row, WithdrawalRow) and self._is_later(order, state.withdrawal_order):
            revived_revision = self._find_revived_revision(state, row)
            visibility_change = self._apply_withdrawal(state, row)
            return (
                ClaimResult(ClaimStatus.PENDING, visibility_change)
                if is_newest
                else ClaimResult(ClaimStatus.SUPERSEDED, revived_revision=revived_revision)
            )
        assert isinstance(row, DocumentRow | WithdrawalRow)
        if isinstance(row, DocumentRow):
            state.statements.append(
                FieldStatement(
                    order,
                    row.accepted_id,
                    stated_fields({name: getattr(row, name) for name in AMENDABLE_FIELDS}),
                    True,
                )
            )
        if not is_newest:
            return ClaimResult(ClaimStatus.SUPERSEDED)
        assert isinstance(row, DocumentRow)
        is_unchanged = self._is_unchanged(state, row, projected.event)
        state.latest_order = order
        state.revisions.append((row, projected.event.data.force))
        title = self._get_amended_title(row.document_id)
        return ClaimResult(
            ClaimStatus.PENDING,
            self.visible_revisions[row.document_id] if is_unchanged else None,
            is_unchanged,
            amended_title=title,
        )

    def _apply_amendment(self, state: _DocumentState, row: AmendmentRow) -> ClaimResult:
        if self._is_older(row.order, state.withdrawal_order):
            return ClaimResult(ClaimStatus.SUPERSEDED)
        statement = FieldStatement(row.order, row.accepted_id, row.fields, False)
        state.statements.append(statement)
        status = (
            ClaimStatus.PENDING
            if is_effective(statement, self._get_effective_statements(state))
            else ClaimStatus.SUPERSEDED
        )
        return ClaimResult(
            status,
            self.visible_revisions.get(row.document_id),
            amended_title=self._get_amended_title(row.document_id),
        )

    def resolve_fields(self, document_id: UUID) -> ResolvedFields | None:
        """Return the current fields of a document, like its row in the tables."""
        return resolve_amendments(self._get_effective_statements(self.documents[document_id]))

    def _get_amended_title(self, document_id: UUID) -> str | None:
        resolved_fields = self.resolve_fields(document_id)
        return (
            resolved_fields.title
            if resolved_fields is not None and "title" in resolved_fields.amended_fields
            else None
        )

    @staticmethod
    def _get_effective_statements(state: _DocumentState) -> list[FieldStatement]:
        return [
            statement
            for statement in state.statements
            if statement.is_revision
            or state.withdrawal_order is None
            or statement.order > state.withdrawal_order
        ]

    def _apply_withdrawal(self, state: _DocumentState, row: WithdrawalRow) -> VisibilityChange:
        visible_order = self._get_visible_order(row.document_id)
        state.withdrawal_order = row.order
        # A late withdrawal leaves the later revision as the latest.
        state.latest_order = max(row.order, state.latest_order or row.order)
        if self._is_older(visible_order or row.order, row.order):
            self.visible_revisions.pop(row.document_id)
        self._remove_older(row.document_id, row.order)
        return VisibilityChange(row.document_id, row.order, 0, visible_order)

    def _find_revived_revision(
        self, state: _DocumentState, withdrawal: WithdrawalRow
    ) -> DocumentRow | None:
        """Return the newest revision after a late withdrawal that is identical to the visible one.

        It was skipped as unchanged; the withdrawal removes the visible revision that stood for it
        (ADR 6).
        """
        visible_order = self._get_visible_order(withdrawal.document_id)
        if visible_order is None or visible_order > withdrawal.order:
            return None
        last_revision = self._find_identical_revisions(state, visible_order)[-1:]
        return (
            last_revision[0]
            if last_revision and last_revision[0].order > withdrawal.order
            else None
        )

    def _is_unchanged(self, state: _DocumentState, row: DocumentRow, event: Event[Any]) -> bool:
        visible_order = self._get_visible_order(row.document_id)
        if (
            visible_order is None
            or event.data.force
            or self.pipeline_fingerprints.get((row.document_id, visible_order))
            != self.generation.how.get("transcribe")
        ):
            return False
        identical_revisions = self._find_identical_revisions(state, visible_order)
        return (
            bool(identical_revisions)
            and identical_revisions[-1] is state.revisions[-1][0]
            and _extract_fields(identical_revisions[-1]) == _extract_fields(row)
        )

    @staticmethod
    def _find_identical_revisions(
        state: _DocumentState, visible_order: OrderKey
    ) -> list[DocumentRow]:
        """Return the visible revision and the identical ones that follow it, up to the first that
        differs.
        """
        later_revisions = [
            (row, is_forced) for row, is_forced in state.revisions if row.order >= visible_order
        ]
        if not later_revisions or later_revisions[0][0].order != visible_order:
            return []
        identical_revisions = [later_revisions[0][0]]
        identical_revisions += [
            row
            for row, _ in takewhile(
                lambda revision: (
                    not revision[1]
                    and _extract_fields(revision[0]) == _extract_fields(identical_revisions[0])
                ),
                later_revisions[1:],
            )
        ]
        return identical_revisions

    def _activate_if_complete(
        self, document_id: UUID, order: OrderKey, rows: Sequence[Row]
    ) -> VisibilityChange | None:
        if not any(isinstance(row, PartCompletedRow) for row in rows) or not self._is_later(
            order, self._get_visible_order(document_id)
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
        # Read before the pointer moves.
        previous_order = self._get_visible_order(document_id)
        self._remove_older(document_id, order)
        chunk_count = sum(
            isinstance(row, ChildRow)
            for key, row in self.rows.items()
            if key[1:3] == (document_id, order)
        )
        self.visible_revisions[document_id] = VisibilityChange(
            document_id, order, chunk_count, previous_order
        )
        return self.visible_revisions[document_id]

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

    def _store_fingerprint(self, projected: ProjectedEvent) -> None:
        for row in projected.rows:
            if isinstance(row, TextRow):
                self.pipeline_fingerprints[row.document_id, row.order] = (
                    projected.event.pipeline_fingerprint
                )

    def _get_visible_order(self, document_id: UUID) -> OrderKey | None:
        visible_revision = self.visible_revisions.get(document_id)
        return visible_revision.order if visible_revision else None

    @staticmethod
    def _is_older(order: OrderKey, reference: OrderKey | None) -> bool:
        return reference is not None and order < reference

    @staticmethod
    def _is_later(order: OrderKey, reference: OrderKey | None) -> bool:
        return reference is None or order > reference


def _extract_fields(row: DocumentRow) -> tuple[Any, ...]:
    stated_values = (
        row.title,
        row.filename,
        row.media_type,
        row.language,
        row.collection,
        row.tags,
        row.metadata,
        row.document_date,
        row.source_uri,
    )
    return (row.content_sha256, row.external_id, *stated_values)


def _build_row_key(row: Row) -> tuple[Any, ...]:
    """Build a key: row class, document, order, then the columns that distinguish rows of that
    class.
    """
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
