"""What waits, for how long, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from anabranch.background.lag import ReaderLine, oldest_in, reader_lag, readers_there
from anabranch.composition.storage import Storage
from schemas.errors import TransientError
from schemas.ports.pauses import WHOLE, Pause
from sql.errors import LOCKED
from sql.inspection import held_locks, horizon_holder
from sql.log import PgLog
from sql.pauses import PgPauses
from sql.stuck import has_reader, lock_holder, oldest_work

HELD_S = 1.0
"""A transaction younger than this holds nothing up that anybody would notice."""
LONG_S = 30.0
"""Work on one event that takes longer than this is named."""
NAMED = 3
"""Tables that are named of those that a transaction has locked."""
Line = dict[str, Any]


async def explained_lags(storage: Storage) -> tuple[list[Line], Line | None]:
    """A line of `reader_lag` for each reader of all generations, with `oldest_seconds`, `why` and `remedy` (null where nothing waits), and whether it is `paused`; and
    what holds the log's horizon. Where somebody's lock keeps us from looking, the numbers are null, and `why` names whose."""
    horizon = await horizon_holder(storage.dsn) if isinstance(storage.log, PgLog) else None
    there = await readers_there(storage)
    try:
        lock, pauses = await lock_holder(storage.pool, HELD_S), await PgPauses(storage.pool).all()
        return [await _line(storage, reader, horizon, lock, pauses) for reader in there], horizon
    except TransientError as error:
        if error.code != LOCKED:
            raise
        named = await named_lock(error, storage.dsn)
        return [_unseen(reader, named) for reader in there], horizon


async def named_lock(error: TransientError, dsn: str) -> TransientError:
    """The same error, with who holds the lock, as far as that can be told."""
    held = await held_locks(dsn, 0.0) if error.code == LOCKED else []
    return type(error)(locked_by(held[0]), code=LOCKED, remedy=let_go(held[0])) if held else error


async def _line(storage: Storage, reader: ReaderLine, horizon: Line | None, lock: Line | None, pauses: Sequence[Pause]) -> Line:
    line = await reader_lag(storage, reader)
    return line | await _explained(storage, line, horizon, lock, [pause for pause in pauses if (pause.reader, pause.topic) == (reader.group, reader.topic)])


def _unseen(reader: ReaderLine, error: TransientError) -> Line:
    unknown = dict.fromkeys(("lag", "acknowledged", "end", "oldest_seconds"))
    return {**asdict(reader), **unknown, "why": error.detail, "remedy": error.remedy, "paused": False}


async def _explained(storage: Storage, line: Line, horizon: Line | None, lock: Line | None, pauses: Sequence[Pause]) -> Line:
    if not line["lag"]:
        return {"oldest_seconds": None, "why": None, "remedy": None, "paused": False}
    oldest = await oldest_in(storage, line["group"], line["topic"])
    waiting = (datetime.now(UTC) - oldest).total_seconds() if oldest else None
    why, remedy = (stands_still(pauses), pauses[0].remedy) if pauses else await _reason(storage, line, horizon, lock, waiting or 0.0)
    return {"oldest_seconds": None if waiting is None else round(max(0.0, waiting), 1), "why": why, "remedy": remedy, "paused": bool(pauses)}


def stands_still(pauses: Sequence[Pause]) -> str:
    partitions = [str(pause.partition) for pause in pauses if pause.partition != WHOLE]
    where = f" in partition {', '.join(partitions)}" if partitions else ""
    return f"stands still{where}: {pauses[0].detail}"


async def _reason(storage: Storage, line: Line, horizon: Line | None, lock: Line | None, waiting: float) -> tuple[str, str]:
    """The first that holds: nobody reads, somebody locks the tables, the log is held back, one event takes long, nothing is done, or it is simply being worked through."""
    if isinstance(storage.log, PgLog) and not await has_reader(storage.pool, line["group"], line["topic"]):
        return "no worker reads it", "Start one: `anabranch up`, or `anabranch worker` with this stage."
    if lock is not None:
        return f"the tables are locked by {_transaction(lock)}", let_go(lock)
    if horizon is not None and horizon["seconds"] >= HELD_S:
        return held_back(horizon), let_go(horizon)
    work = await oldest_work(storage.pool, line["stage"], line["generation"])
    if work is not None and (work["seconds"] >= LONG_S or work["attempts"] > 1):
        return _at_work(work), f"`anabranch documents show {work['document_id']}` has its stages; `anabranch doctor` says which servers do not answer."
    if work is None and waiting >= LONG_S:
        return "nothing of what waits has been begun", "See that a worker with this stage runs, and what its log says."
    return "it is being worked through", ""


def held_back(horizon: Mapping[str, Any]) -> str:
    return f"the log is held back by {_transaction(horizon)}"


def locked_by(lock: Mapping[str, Any]) -> str:
    tables = ", ".join(lock["tables"][:NAMED]) + (f" and {len(lock['tables']) - NAMED} more" if len(lock["tables"]) > NAMED else "")
    return f"{tables} {'is' if len(lock['tables']) == 1 else 'are'} locked by {_transaction(lock)}"


def _transaction(found: Mapping[str, Any]) -> str:
    by = found["application"] or "a client without a name"
    return f"a transaction of {by} (pid {found['pid']}, {found['state']}, {found['seconds'] or 0:.0f} s): {found['query']}"


def let_go(horizon: Mapping[str, Any]) -> str:
    if horizon["pid"] is None:
        return f"It was prepared and never ended: commit prepared '{horizon['query']}', or roll it back."
    return f"Wait for it, or end it: select pg_terminate_backend({horizon['pid']});"


def _at_work(work: Mapping[str, Any]) -> str:
    tries = f", at attempt {work['attempts']}" if work["attempts"] > 1 else ""
    place = f"{work['topic']}[{work['partition']}]@{work['offset']}"
    return f"document {work['document_id']} (part {work['part']}, {place}) has been at this stage for {work['seconds']:.0f} s{tries}"
