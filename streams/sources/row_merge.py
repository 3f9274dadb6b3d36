"""Merge the changes of a row into its current state, independent of their order of arrival.

Pure functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from schemas.sources import RowChange, RowState, SequenceMark, TableFloors

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
