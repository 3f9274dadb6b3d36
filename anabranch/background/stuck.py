"""What waits, for how long, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from anabranch.background.lag import oldest_in, stage_lags
from anabranch.composition.storage import Storage
from processors import STAGES
from schemas.ports.pauses import WHOLE, Pause
from sql.generations import PgGenerations
from sql.inspection import horizon_holder
from sql.log import PgLog
from sql.pauses import PgPauses
from sql.stuck import has_reader, lock_holder, oldest_work

HELD_S = 1.0
"""A transaction younger than this holds nothing up that anybody would notice."""
LONG_S = 30.0
"""Work on one event that takes longer than this is named."""
NO_GENERATION = ""
Line = dict[str, Any]


async def explained_lags(storage: Storage) -> tuple[list[Line], Line | None]:
    """The lines of `stage_lags`, each with `oldest_seconds`, `why` and `remedy` (null where nothing waits), and whether it is `paused`; and what holds the
    log's horizon."""
    horizon = await horizon_holder(storage.dsn) if isinstance(storage.log, PgLog) else None
    lock = await lock_holder(storage.pool, HELD_S)
    live = await PgGenerations(storage.pool).live()
    shared, pauses = {stage.name for stage in STAGES if stage.shared}, await PgPauses(storage.pool).all()
    return [
        line | await _explained(storage, line, NO_GENERATION if line["stage"] in shared or live is None else live.name, horizon, lock, _of(line, pauses))
        for line in await stage_lags(storage)
    ], horizon


def _of(line: Line, pauses: Sequence[Pause]) -> list[Pause]:
    return [pause for pause in pauses if (pause.reader, pause.topic) == (line["group"], line["topic"])]


async def _explained(storage: Storage, line: Line, generation: str, horizon: Line | None, lock: Line | None, pauses: Sequence[Pause]) -> Line:
    if not line["lag"]:
        return {"oldest_seconds": None, "why": None, "remedy": None, "paused": False}
    oldest = await oldest_in(storage, line["group"], line["topic"])
    waiting = (datetime.now(UTC) - oldest).total_seconds() if oldest else None
    why, remedy = (stands_still(pauses), pauses[0].remedy) if pauses else await _reason(storage, line, generation, horizon, lock, waiting or 0.0)
    return {"oldest_seconds": None if waiting is None else round(max(0.0, waiting), 1), "why": why, "remedy": remedy, "paused": bool(pauses)}


def stands_still(pauses: Sequence[Pause]) -> str:
    partitions = [str(pause.partition) for pause in pauses if pause.partition != WHOLE]
    where = f" in partition {', '.join(partitions)}" if partitions else ""
    return f"stands still{where}: {pauses[0].detail}"


async def _reason(storage: Storage, line: Line, generation: str, horizon: Line | None, lock: Line | None, waiting: float) -> tuple[str, str]:
    """The first that holds: nobody reads, somebody locks the tables, the log is held back, one event takes long, nothing is done, or it is simply being worked through."""
    if isinstance(storage.log, PgLog) and not await has_reader(storage.pool, line["group"], line["topic"]):
        return "no worker reads it", "Start one: `anabranch up`, or `anabranch worker` with this stage."
    if lock is not None:
        return f"the tables are locked by {_transaction(lock)}", let_go(lock)
    if horizon is not None and horizon["seconds"] >= HELD_S:
        return held_back(horizon), let_go(horizon)
    work = await oldest_work(storage.pool, line["stage"], generation)
    if work is not None and (work["seconds"] >= LONG_S or work["attempts"] > 1):
        return _at_work(work), f"`anabranch documents show {work['document_id']}` has its stages; `anabranch doctor` says which servers do not answer."
    if work is None and waiting >= LONG_S:
        return "nothing of what waits has been begun", "See that a worker with this stage runs, and what its log says."
    return "it is being worked through", ""


def held_back(horizon: Mapping[str, Any]) -> str:
    return f"the log is held back by {_transaction(horizon)}"


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
