"""The revision policy: decide which events of a document take effect, given the document's state.

A revision wins if its order is later than the latest revision and the withdrawal. It is unchanged
if the visible revision has the same content, fields and pipeline fingerprint.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from schemas.amendments import (
    AMENDABLE_FIELDS,
    FieldStatement,
    OrderKey,
    ResolvedFields,
    is_effective,
    may_read,
    resolve_amendments,
    resolve_readers,
    stated_fields,
)
from schemas.ports.ledger import (
    ClaimResult,
    ClaimStatus,
    OrderingPolicy,
    ProjectedEvent,
    VisibilityChange,
)
from schemas.rows import AmendmentRow, DocumentRow, WithdrawalRow
from sql.database import encode_json_text

STORED_FIELDS = (
    *("title", "filename", "media_type", "language", "collection", "source_uri", "external_id"),
    "metadata",
)
"""Fields of a producer that are stored as they are; tags, date and readers are converted."""


@dataclass(slots=True)
class VisibleRevision:
    """The visible revision, with the fields that later revisions are compared with."""

    content_sha256: str | None
    pipeline_fingerprint: str | None
    fields: dict[str, Any] | None
    unchanged_until: OrderKey
    """Order of the last consecutive revision with the same content."""
    is_superseded: bool = False
    """True if a later revision has different content."""

    def add_later(self, row: DocumentRow, *, is_forced: bool) -> None:
        """Take the next accepted revision into account."""
        # The chain of equal revisions ends at the first one that differs.
        if not self.is_superseded and self.has_same_content(row, is_forced=is_forced):
            self.unchanged_until = row.order
        else:
            self.is_superseded = True

    def has_same_content(self, row: DocumentRow, *, is_forced: bool) -> bool:
        return (
            # A forced revision is processed although nothing changed.
            not is_forced
            and self.content_sha256 == row.content_sha256
            and self.fields == build_fields(row)
        )


@dataclass(slots=True)
class DocumentState:
    latest: OrderKey | None
    withdrawn: OrderKey | None
    revision: int
    accepted_id: UUID | None
    visible_order: OrderKey | None = None
    chunks: int = 0
    visible_revision: VisibleRevision | None = None
    readers: tuple[str, ...] | None = None
    """Effective readers as stored, which outlast a withdrawal."""
    live_order: OrderKey | None = None
    """Order that is visible in the live generation, while this generation is built."""

    statements: list[FieldStatement] | None = None
    """Field statements of amendments and revisions; None for a document without amendments."""

    @property
    def is_erased(self) -> bool:
        """Return whether only the tombstone is left."""
        return self.latest is None and self.withdrawn is not None

    def is_superseded(self, order: OrderKey) -> bool:
        """Return whether a withdrawal or a visible revision with a later order exists."""
        later_orders = (self.withdrawn, self.visible_order, self.live_order)
        return any(later is not None and order < later for later in later_orders)

    def add_statement(self, statement: FieldStatement) -> None:
        # A redelivered event states the same thing again.
        if self.statements is not None and all(
            (statement.order, statement.identity) != (other.order, other.identity)
            for other in self.statements
        ):
            self.statements.append(statement)

    @property
    def effective_statements(self) -> list[FieldStatement]:
        # A withdrawal ends earlier amendments. Revisions stay: the tombstone keeps the title of the
        # last one.
        return [
            statement
            for statement in self.statements or ()
            if statement.is_revision or self.withdrawn is None or statement.order > self.withdrawn
        ]

    def resolve_fields(self) -> ResolvedFields | None:
        """Return the effective fields, or None if no revision is among the statements."""
        return resolve_amendments(self.effective_statements)

    def find_readers(self, order: OrderKey) -> tuple[str, ...] | None:
        """Return the readers in effect before `order`; after a withdrawal its own still hold."""
        earlier = [item for item in self.effective_statements if item.order < order]
        if _is_later(order, self.withdrawn) and not any(
            _is_later(item.order, self.withdrawn) for item in earlier
        ):
            return self.readers
        return resolve_readers(earlier)

    @property
    def amended_title(self) -> str | None:
        amended = self.resolve_fields()
        return amended.title if amended is not None and "title" in amended.amended_fields else None


States = Mapping[UUID, DocumentState]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision about an event, made under the locks before anything is written."""

    event: ProjectedEvent
    claim: ClaimStatus
    visibility_change: VisibilityChange | None = None
    is_unchanged: bool = False
    needs_write: bool = True
    """False if the event's rows exist already."""
    revived_order: OrderKey | None = None
    """Order of the revision that a late withdrawal revived."""
    is_refused: bool = False
    """True if the document's readers exclude the caller that requested the change."""

    @property
    def result(self) -> ClaimResult:
        return ClaimResult(self.claim, self.visibility_change, self.is_unchanged)


def decide_event(
    ordering: OrderingPolicy,
    event: ProjectedEvent,
    state: DocumentState,
    pipeline_fingerprint: str | None,
) -> Verdict:
    """Decide about an event of a document and update the state as its rows will.

    `pipeline_fingerprint` is that of the generation's transcribe stage.
    """
    if ordering == OrderingPolicy.LATEST:
        return _decide_revision(event, state, pipeline_fingerprint)
    return Verdict(
        event,
        ClaimStatus.SUPERSEDED
        if state.is_superseded(tuple(event.event.data.order))
        else ClaimStatus.PENDING,
    )


def _decide_revision(
    event: ProjectedEvent, state: DocumentState, pipeline_fingerprint: str | None
) -> Verdict:
    [row] = event.rows
    assert isinstance(row, DocumentRow | AmendmentRow | WithdrawalRow), (
        "transcribe projects documents, amendments and withdrawals"
    )
    if isinstance(row, AmendmentRow):
        return _decide_amendment(event, row, state)
    # Under the document's lock: the log may hold new readers that the API could not know.
    if not may_read(row.limited_to, state.find_readers(row.order)):
        return Verdict(event, ClaimStatus.SUPERSEDED, needs_write=False, is_refused=True)
    is_newest = _is_later(row.order, state.latest) and _is_later(row.order, state.withdrawn)
    # The latest withdrawal applies even if a revision has overtaken it (ADR 6).
    if isinstance(row, WithdrawalRow) and _is_later(row.order, state.withdrawn):
        # Before the withdrawal changes the state that this reads.
        revived_order = _resolve_surviving_order(state, row.order)
        change = _apply_withdrawal(row, state)
        return (
            Verdict(event, ClaimStatus.PENDING, change)
            if is_newest
            else Verdict(event, ClaimStatus.SUPERSEDED, revived_order=revived_order)
        )
    if isinstance(row, DocumentRow):
        # Also of a superseded revision, which ends amendments that precede it.
        state.add_statement(
            FieldStatement(
                row.order, row.accepted_id, extract_stated_fields(row), True, row.limited_to
            )
        )
    if not is_newest:
        # Its claim was pruned: the reaction may still be owed, but the rows exist.
        is_redelivery = row.order == state.latest and row.accepted_id == state.accepted_id
        return Verdict(
            event,
            ClaimStatus.PENDING if is_redelivery else ClaimStatus.SUPERSEDED,
            needs_write=False,
        )
    assert isinstance(row, DocumentRow)
    is_forced, visible = event.event.data.force, state.visible_revision
    is_unchanged = (
        visible is not None
        # The revision in between becomes visible after a superseded one.
        and not visible.is_superseded
        and visible.pipeline_fingerprint == pipeline_fingerprint
        and visible.has_same_content(row, is_forced=is_forced)
    )
    state.latest, state.accepted_id = row.order, row.accepted_id
    state.revision += 1
    if visible is not None:
        visible.add_later(row, is_forced=is_forced)
    return Verdict(
        event,
        ClaimStatus.PENDING,
        _build_unmoved_change(row, state) if is_unchanged else None,
        is_unchanged,
    )


def _decide_amendment(event: ProjectedEvent, row: AmendmentRow, state: DocumentState) -> Verdict:
    """Decide whether an amendment takes effect.

    It is superseded if later statements cover all of its fields, or if the document was withdrawn
    after it.
    """
    if state.withdrawn is not None and row.order < state.withdrawn:
        return Verdict(event, ClaimStatus.SUPERSEDED, needs_write=False)
    statement = FieldStatement(row.order, row.accepted_id, row.fields, False, row.limited_to)
    state.add_statement(statement)
    return Verdict(
        event,
        ClaimStatus.PENDING
        if is_effective(statement, state.effective_statements)
        else ClaimStatus.SUPERSEDED,
        # Nothing becomes visible; the outcome names the revision that shows the amendment.
        _build_unmoved_change(row, state),
    )


def _build_unmoved_change(
    row: DocumentRow | AmendmentRow, state: DocumentState
) -> VisibilityChange | None:
    """Report the revision that stays visible, if there is one."""
    return (
        VisibilityChange(row.document_id, state.visible_order, state.chunks, None)
        if state.visible_order
        else None
    )


def _resolve_surviving_order(state: DocumentState, withdrawal: OrderKey) -> OrderKey | None:
    """Return the order of the revision that survives a late withdrawal, or None.

    It is the last revision after the withdrawal that changed nothing: it has no rows of its own and
    was served by the visible revision, which is older than the withdrawal.
    """
    if (
        state.visible_revision is None
        or not _is_later(withdrawal, state.visible_order)
        or not _is_later(state.visible_revision.unchanged_until, withdrawal)
    ):
        return None
    return state.visible_revision.unchanged_until


def _apply_withdrawal(row: WithdrawalRow, state: DocumentState) -> VisibilityChange:
    # Applies to a late withdrawal as well: an older revision must not stay visible if the later one
    # fails.
    change = VisibilityChange(row.document_id, row.order, 0, state.visible_order)
    if state.statements is not None:
        state.readers = state.find_readers(row.order)
    state.withdrawn = row.order
    if _is_later(row.order, state.latest):
        state.latest, state.accepted_id = row.order, row.accepted_id
    if _is_later(row.order, state.visible_order):
        state.visible_order = state.visible_revision = None
    return change


def build_fields(row: DocumentRow) -> dict[str, Any]:
    """Return the producer's fields as they are stored with a revision."""
    fields = {name: getattr(row, name) for name in STORED_FIELDS}
    fields |= {
        "tags": list(row.tags),
        "document_date": row.document_date.isoformat() if row.document_date else None,
    }
    # Omitted if null, so that revisions stored before documents had readers compare as equal.
    fields |= {"readers": list(row.readers)} if row.readers is not None else {}
    # Through JSON, as stored: NUL is replaced, so a comparison with the table's value holds.
    return dict(json.loads(encode_json_text(fields)))


def extract_stated_fields(row: DocumentRow) -> dict[str, Any]:
    """Return the amendable fields that a revision states."""
    return stated_fields({name: getattr(row, name) for name in AMENDABLE_FIELDS})


def _is_later(order: OrderKey, other: OrderKey | None) -> bool:
    return other is None or order > other
