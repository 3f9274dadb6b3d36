"""Merge the changes of a row into its state, independent of their order of arrival, and compute the
next event for `raw` from that state, the mapping and the last event emitted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from schemas.errors import MalformedEvent
from schemas.ids import canonical_json, fingerprint
from schemas.sources import (
    RELEASE_STEP,
    EmittedState,
    ReleasedId,
    RowChange,
    RowMapping,
    RowState,
    SequenceMark,
    SourceSpec,
    TableFloors,
)
from streams.sources.column_values import format_as_text
from streams.sources.debezium import format_row_key

_MISSING = object()
Rows = Mapping[str, RowState]


@dataclass(frozen=True, slots=True)
class PresentRow:
    """The row exists with these columns, as of the change with this mark."""

    table: str
    mark: SequenceMark
    columns: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AbsentRow:
    """The row does not exist since this mark."""

    table: str
    mark: SequenceMark


@dataclass(frozen=True, slots=True)
class IncompleteRow:
    """Its newest change leaves columns unchanged whose earlier values have not arrived yet."""


MergedRow = PresentRow | AbsentRow | IncompleteRow


def merge_row(key: str, rows: Rows, floors: Mapping[str, TableFloors]) -> MergedRow | None:
    """Merge the changes of a row; None if there are none."""
    state = rows[key]
    live_changes = [
        change
        for change in state.changes
        if not floors.get(change.table, TableFloors()).is_obsolete(change)
    ]
    # A maximum over all changes, hence the same row in whatever order they arrive.
    newest_change = max(live_changes, key=_get_order_key, default=None)
    if newest_change is None:
        # Every change is obsolete: the row was truncated, or missing in a later snapshot.
        tables: Iterable[str] = [change.table for change in state.changes] or (
            [state.emitted.table] if state.emitted else []
        )
        highest = [(floors[table].highest, table) for table in tables if table in floors]
        return AbsentRow(max(highest)[1], max(highest)[0]) if highest else None
    if newest_change.is_deleted:
        return AbsentRow(newest_change.table, newest_change.mark)
    previous_values = {
        name: _resolve_previous_value(name, newest_change, rows, frozenset())
        for name in newest_change.unchanged_columns
    }
    # `_MISSING`, not None: null is a value that a column may have.
    if any(value is _MISSING for value in previous_values.values()):
        return IncompleteRow()
    return PresentRow(
        newest_change.table, newest_change.mark, {**newest_change.columns, **previous_values}
    )


def _resolve_previous_value(
    name: str, change: RowChange, rows: Rows, visited: frozenset[tuple[str, SequenceMark]]
) -> Any:
    """Return the column's value before the change, or _MISSING."""
    # If the change set a new key, earlier changes are under the old one. Marks of different epochs
    # are unrelated.
    key = change.old_key or change.key
    earlier_changes = [
        candidate
        for candidate in (rows[key].changes if key in rows else ())
        if candidate.epoch == change.epoch and candidate.order < change.order
    ]
    previous_change = max(earlier_changes, key=_get_order_key, default=None)
    if (
        previous_change is None
        or previous_change.is_deleted
        or (key, previous_change.mark) in visited
    ):
        return _MISSING
    if name not in previous_change.unchanged_columns:
        return previous_change.columns.get(name)
    return _resolve_previous_value(
        name, previous_change, rows, visited | {(key, previous_change.mark)}
    )


def _get_order_key(change: RowChange) -> tuple[tuple[int, int, int], bool]:
    # A tie must not depend on the order of arrival, so the deletion wins.
    return change.order, change.is_deleted


MAX_METADATA_BYTES = 500_000
"""Leaves room for the other fields of an event (`MAX_EVENT_BYTES`)."""


@dataclass(frozen=True, slots=True)
class SourceDocument:
    """A document built from a row: `text`, or `base64` with the bytes of a file."""

    external_id: str
    text: str | None = None
    base64: str | None = None
    title: str | None = None
    language: str | None = None
    filename: str | None = None
    metadata: Mapping[str, Any] | None = None


def build_document(key: str, columns: Mapping[str, Any], mapping: RowMapping) -> SourceDocument:
    """Build the document of a row.

    Raises MalformedEvent for an empty id and for content that no event accepts.
    """
    external_id = (
        format_row_key({name: columns[name] for name in mapping.id}) if mapping.id else key
    )
    text_body, base64_body = _build_body(columns, mapping)
    language = format_as_text(columns[mapping.language]) if mapping.language else ""
    metadata = {name: columns[name] for name in mapping.metadata if columns[name] is not None}
    if (size := len(canonical_json(metadata))) > MAX_METADATA_BYTES:
        raise MalformedEvent(
            f"The metadata of {external_id!r} has {size:,} bytes; {MAX_METADATA_BYTES:,} are "
            "allowed.",
            code="MALFORMED_CHANGE",
            remedy="Declare fewer columns as metadata, or make a large one part of the body.",
        )
    return SourceDocument(
        external_id=external_id,
        text=text_body,
        base64=base64_body,
        title=_truncate_column(columns, mapping.title, 2000),
        language=language if len(language) <= 35 and language else None,
        filename=_truncate_column(columns, mapping.filename, 1024),
        metadata=metadata,
    )


def _build_body(columns: Mapping[str, Any], mapping: RowMapping) -> tuple[str | None, str | None]:
    values = [columns[name] for name in mapping.body]
    files = [value for value in values if isinstance(value, Mapping) and set(value) == {"base64"}]
    if files and len(values) > 1:
        raise MalformedEvent(
            "The body combines a column of bytes with others.",
            code="MALFORMED_CHANGE",
            remedy="Declare one column of bytes as the body, or only columns of text.",
        )
    if files:
        return None, str(files[0]["base64"])
    return "\n\n".join(text for text in map(format_as_text, values) if text), None


def _truncate_column(columns: Mapping[str, Any], name: str | None, max_chars: int) -> str | None:
    return format_as_text(columns[name])[:max_chars] or None if name else None


def compute_next_emitted_state(
    key: str,
    merged_row: MergedRow | None,
    previous: EmittedState | None,
    spec: SourceSpec,
    mapping: RowMapping,
) -> EmittedState | None:
    """Return the next state to emit for a row, None if it is unchanged. Raises MalformedEvent."""
    match merged_row:
        case PresentRow():
            return _compute_for_present_row(
                build_document(key, merged_row.columns, mapping), merged_row, previous, spec
            )
        case AbsentRow() if (
            previous is not None and previous.is_live and merged_row.mark >= previous.mark
        ):
            return _build_emitted_state(
                previous, merged_row, fingerprint("gone"), previous.external_id, is_live=False
            )
    return None


def _compute_for_present_row(
    document: SourceDocument, row: PresentRow, previous: EmittedState | None, spec: SourceSpec
) -> EmittedState | None:
    if not (document.text or document.base64):
        # A row without text is no document (yet): withdraw the previous one.
        if previous is None or not previous.is_live or row.mark < previous.mark:
            return None
        return _build_emitted_state(
            previous, row, fingerprint("empty"), previous.external_id, is_live=False
        )
    # Tenant, collection and tags are part of it: if they change, all documents are sent again.
    fields = {name: getattr(document, name) for name in SourceDocument.__slots__}
    digest = fingerprint("document", fields, spec.tenant, spec.collection, spec.tags)
    if previous is not None and (
        row.mark < previous.mark
        or (
            previous.is_live
            and previous.digest == digest
            # After a reset the event is sent again, so that later numbers of the new epoch win.
            and previous.epoch == row.mark[0]
        )
    ):
        return None
    return _build_emitted_state(previous, row, digest, document.external_id, is_live=True)


def _build_emitted_state(
    previous: EmittedState | None,
    row: PresentRow | AbsentRow,
    digest: str,
    external_id: str,
    *,
    is_live: bool,
) -> EmittedState:
    # A second event with the same mark is a correction of the first: `step` orders them.
    step = previous.step + 1 if previous is not None and previous.mark == row.mark else 0
    emitted_state = EmittedState(row.table, *row.mark, step, digest, external_id, is_live)
    if previous is None:
        return emitted_state
    return replace(emitted_state, released_ids=_compute_released_ids(previous, emitted_state))


def _compute_released_ids(
    previous: EmittedState, emitted_state: EmittedState
) -> tuple[ReleasedId, ...]:
    released_ids = (
        {released_id.external_id: released_id for released_id in previous.released_ids}
        # Withdrawals of an unpublished state are still owed.
        if previous.is_pending
        else {}
    )
    if previous.is_live:
        released_ids[previous.external_id] = ReleasedId(
            previous.external_id,
            previous.mark,
            emitted_state.step if emitted_state.mark == previous.mark else RELEASE_STEP,
        )
    return tuple(
        released_id
        for name, released_id in released_ids.items()
        # The row has taken this id back.
        if not (emitted_state.is_live and name == emitted_state.external_id)
    )
