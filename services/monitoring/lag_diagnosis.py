"""What waits, for how long, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from schemas.errors import TransientError
from schemas.ports.reader_status import ALL_PARTITIONS, Pause
from services.monitoring.consumer_lag import ConsumerKey, fetch_consumer_lag, fetch_oldest_pending_time, list_consumers
from services.storage import Storage
from sql.diagnosis import fetch_lock_holder, fetch_oldest_running_work, has_reader
from sql.errors import LOCK_TIMEOUT_CODE
from sql.inspection import fetch_blocking_transactions, fetch_horizon_holder
from sql.log import PgLog
from sql.reader_status import PgReaderStatus

MIN_BLOCKING_S = 1.0
"""A transaction younger than this holds nothing up that anybody would notice."""
SLOW_S = 30.0
"""Work on one event that takes longer than this is named."""
MAX_NAMED_TABLES = 3
"""Tables that are named of those that a transaction has locked."""
LagLine = dict[str, Any]


async def explain_lags(storage: Storage) -> tuple[list[LagLine], LagLine | None]:
    """A line of `reader_lag` for each reader of all generations, with `oldest_seconds`, `why` and `remedy` (null where nothing waits), and whether it is `paused`; and
    what holds the log's horizon. Where somebody's lock keeps us from looking, the numbers are null, and `why` names whose."""
    horizon = await fetch_horizon_holder(storage.dsn) if isinstance(storage.log, PgLog) else None
    consumers = await list_consumers(storage)
    try:
        lock, pauses = await fetch_lock_holder(storage.pool, MIN_BLOCKING_S), await PgReaderStatus(storage.pool).list_current()
        return [await _fetch_line(storage, consumer, horizon, lock, pauses) for consumer in consumers], horizon
    except TransientError as error:
        if error.code != LOCK_TIMEOUT_CODE:
            raise
        lock_error = await add_lock_holder(error, storage.dsn)
        return [_build_unknown_line(consumer, lock_error) for consumer in consumers], horizon


async def add_lock_holder(error: TransientError, dsn: str) -> TransientError:
    """The same error, with who holds the lock, as far as that can be told."""
    locks = await fetch_blocking_transactions(dsn, 0.0) if error.code == LOCK_TIMEOUT_CODE else []
    return type(error)(format_lock_holder(locks[0]), code=LOCK_TIMEOUT_CODE, remedy=suggest_release(locks[0])) if locks else error


async def _fetch_line(storage: Storage, consumer: ConsumerKey, horizon: LagLine | None, lock: LagLine | None, pauses: Sequence[Pause]) -> LagLine:
    line = await fetch_consumer_lag(storage, consumer)
    return line | await _explain_line(
        storage, line, horizon, lock, [pause for pause in pauses if (pause.reader, pause.topic) == (consumer.group, consumer.topic)]
    )


def _build_unknown_line(consumer: ConsumerKey, error: TransientError) -> LagLine:
    empty_numbers = dict.fromkeys(("lag", "acknowledged", "end", "oldest_seconds"))
    return {**asdict(consumer), **empty_numbers, "why": error.detail, "remedy": error.remedy, "paused": False}


async def _explain_line(storage: Storage, line: LagLine, horizon: LagLine | None, lock: LagLine | None, pauses: Sequence[Pause]) -> LagLine:
    if not line["lag"]:
        return {"oldest_seconds": None, "why": None, "remedy": None, "paused": False}
    oldest_at = await fetch_oldest_pending_time(storage, line["group"], line["topic"])
    waiting_s = (datetime.now(UTC) - oldest_at).total_seconds() if oldest_at else None
    why, remedy = (format_stall(pauses), pauses[0].remedy) if pauses else await _find_reason(storage, line, horizon, lock, waiting_s or 0.0)
    return {"oldest_seconds": None if waiting_s is None else round(max(0.0, waiting_s), 1), "why": why, "remedy": remedy, "paused": bool(pauses)}


def format_stall(pauses: Sequence[Pause]) -> str:
    partitions = [str(pause.partition) for pause in pauses if pause.partition != ALL_PARTITIONS]
    where = f" in partition {', '.join(partitions)}" if partitions else ""
    return f"stands still{where}: {pauses[0].detail}"


async def _find_reason(storage: Storage, line: LagLine, horizon: LagLine | None, lock: LagLine | None, waiting_s: float) -> tuple[str, str]:
    """The first that holds: nobody reads, somebody locks the tables, the log is held back, one event takes long, nothing is done, or it is simply being worked through."""
    if isinstance(storage.log, PgLog) and not await has_reader(storage.pool, line["group"], line["topic"]):
        return "no worker reads it", "Start one: `anabranch up`, or `anabranch worker` with this stage."
    if lock is not None:
        return f"the tables are locked by {_format_transaction(lock)}", suggest_release(lock)
    if horizon is not None and horizon["seconds"] >= MIN_BLOCKING_S:
        return format_horizon_holder(horizon), suggest_release(horizon)
    work = await fetch_oldest_running_work(storage.pool, line["stage"], line["generation"])
    if work is not None and (work["seconds"] >= SLOW_S or work["attempts"] > 1):
        return _format_slow_work(work), f"`anabranch documents show {work['document_id']}` has its stages; `anabranch doctor` says which servers do not answer."
    if work is None and waiting_s >= SLOW_S:
        return "nothing of what waits has been begun", "See that a worker with this stage runs, and what its log says."
    return "it is being worked through", ""


def format_horizon_holder(horizon: Mapping[str, Any]) -> str:
    return f"the log is held back by {_format_transaction(horizon)}"


def format_lock_holder(lock: Mapping[str, Any]) -> str:
    tables = ", ".join(lock["tables"][:MAX_NAMED_TABLES]) + (
        f" and {len(lock['tables']) - MAX_NAMED_TABLES} more" if len(lock["tables"]) > MAX_NAMED_TABLES else ""
    )
    return f"{tables} {'is' if len(lock['tables']) == 1 else 'are'} locked by {_format_transaction(lock)}"


def _format_transaction(transaction: Mapping[str, Any]) -> str:
    application = transaction["application"] or "a client without a name"
    return f"a transaction of {application} (pid {transaction['pid']}, {transaction['state']}, {transaction['seconds'] or 0:.0f} s): {transaction['query']}"


def suggest_release(horizon: Mapping[str, Any]) -> str:
    if horizon["pid"] is None:
        return f"It was prepared and never ended: commit prepared '{horizon['query']}', or roll it back."
    return f"Wait for it, or end it: select pg_terminate_backend({horizon['pid']});"


def _format_slow_work(work: Mapping[str, Any]) -> str:
    attempts = f", at attempt {work['attempts']}" if work["attempts"] > 1 else ""
    position = f"{work['topic']}[{work['partition']}]@{work['offset']}"
    return f"document {work['document_id']} (part {work['part']}, {position}) has been at this stage for {work['seconds']:.0f} s{attempts}"
