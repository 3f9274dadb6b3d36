"""What the changes of a row come to, in whatever order they arrived: pure functions of what is known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from schemas.sources import Change, Floors, Mark, RowState

_NOTHING = object()
Rows = Mapping[str, RowState]


@dataclass(frozen=True, slots=True)
class Present:
    """The row is there, with these columns, by the change of this mark."""

    table: str
    mark: Mark
    columns: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Absent:
    """The row is no more since this mark."""

    table: str
    mark: Mark


@dataclass(frozen=True, slots=True)
class Unsure:
    """Its newest change says that some columns are as before, and nobody has told yet what they were."""


Outcome = Present | Absent | Unsure


def outcome(key: str, rows: Rows, floors: Mapping[str, Floors]) -> Outcome | None:
    """None for a row of which nothing is known."""
    state = rows[key]
    living = [change for change in state.changes if not floors.get(change.table, Floors()).bury(change)]
    newest = max(living, key=_order, default=None)
    if newest is None:
        return _swept(state, floors)
    if newest.gone:
        return Absent(newest.table, newest.mark)
    before = {name: _before(name, newest, rows, frozenset()) for name in newest.unknown}
    if any(value is _NOTHING for value in before.values()):
        return Unsure()
    return Present(newest.table, newest.mark, {**newest.columns, **before})


def _swept(state: RowState, floors: Mapping[str, Floors]) -> Absent | None:
    """Everything that is known of the row lies below its table's floors."""
    tables: Iterable[str] = [change.table for change in state.changes] or ([state.said.table] if state.said else [])
    highest = [(floors[table].highest, table) for table in tables if table in floors]
    return Absent(max(highest)[1], max(highest)[0]) if highest else None


def _before(name: str, change: Change, rows: Rows, seen: frozenset[tuple[str, Mark]]) -> Any:
    """What the column held before the change, or _NOTHING. A row that got its key with the change is looked up under its old one.
    Marks of different epochs have nothing to do with each other."""
    key = change.old_key or change.key
    earlier = [other for other in _known(rows, key) if other.epoch == change.epoch and other.order < change.order]
    previous = max(earlier, key=_order, default=None)
    if previous is None or previous.gone or (key, previous.mark) in seen:
        return _NOTHING
    if name not in previous.unknown:
        return previous.columns.get(name)
    return _before(name, previous, rows, seen | {(key, previous.mark)})


def _known(rows: Rows, key: str) -> Sequence[Change]:
    return rows[key].changes if key in rows else ()


def _order(change: Change) -> tuple[tuple[int, int, int], bool]:
    return change.order, change.gone
