"""List the lag of each consumer group, and explain it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from processors import STAGES, transcribe
from schemas.errors import ConfigurationError, TransientError
from schemas.ports.consumers import ALL_PARTITIONS, Pause
from services.generations.decisions import FIRST_GENERATION
from services.generations.stage_assignments import assign_stages, resolve_topic_generation
from services.storage import Storage
from sql.errors import LOCK_TIMEOUT_CODE
from sql.operations.monitoring import (
    PgReaderStatus,
    fetch_blocking_transactions,
    fetch_horizon_holder,
    fetch_lock_holder,
    fetch_oldest_running_work,
)
from streams.stage_consumer import format_group_name

DOCUMENT_STAGE = transcribe.STAGE.name
"""Consumes for all generations, as shared stages do."""


@dataclass(frozen=True, slots=True)
class ConsumerKey:
    """`generation` is None if the group serves all generations."""

    stage: str
    generation: str | None
    topic: str
    group: str


async def list_consumers(storage: Storage) -> list[ConsumerKey]:
    """List the groups of all generations; before the first generation, those to come.

    Raises DatabaseUnavailable.
    """
    generations = await storage.generations.fetch_undropped()
    if not generations:
        return [
            ConsumerKey(stage.name, None, stage.topic, format_group_name(stage.name, None))
            for stage in STAGES
        ]
    return [
        ConsumerKey(
            assignment.stage.name,
            None
            if assignment.stage.serves_all_generations or assignment.stage.name == DOCUMENT_STAGE
            else assignment.generation.name,
            assignment.topic,
            assignment.group,
        )
        for assignment in assign_stages(generations, STAGES, storage.producer_topics)
    ]


async def fetch_stage_lags(storage: Storage) -> list[dict[str, Any]]:
    """Return one line per stage of the live generation: that of the group with the largest lag.

    See `fetch_consumer_lag`.
    """
    live, lines = await storage.generations.fetch_live(), dict[str, dict[str, Any]]()
    for consumer in await list_consumers(storage):
        if live is None or consumer.generation in (None, live.name):
            line, previous = await fetch_consumer_lag(storage, consumer), lines.get(consumer.stage)
            lines[consumer.stage] = (
                line if previous is None or line["lag"] > previous["lag"] else previous
            )
    return list(lines.values())


async def fetch_consumer_lag(storage: Storage, consumer: ConsumerKey) -> dict[str, Any]:
    """Return `{stage, generation, topic, group, lag, acknowledged, end}`, summed over partitions.

    A generation's own topic that does not exist yet has no lag.
    """
    try:
        # In this order: with lag 0, the committed offsets cover every record counted.
        lag = await storage.log.count_pending(consumer.group, consumer.topic)
        acknowledged = await storage.log.fetch_committed_offsets(consumer.group, consumer.topic)
        bounds = await storage.log.fetch_offset_bounds(consumer.topic)
    except ConfigurationError as error:
        # The base topics always exist, so there it is an error.
        if error.code != "NO_TOPIC" or resolve_topic_generation(consumer.topic) == FIRST_GENERATION:
            raise
        return {**asdict(consumer), "lag": 0, "acknowledged": 0, "end": 0}
    return {
        **asdict(consumer),
        "lag": lag,
        "acknowledged": sum(acknowledged.values()),
        "end": sum(following for _, following in bounds.values()),
    }


MIN_BLOCKING_S = 1.0
"""Younger transactions are not reported."""
SLOW_S = 30.0
"""Report an event that has been processed for longer."""
BEING_PROCESSED = "it is being processed"
MAX_NAMED_TABLES = 3
"""Locked tables to name per transaction."""
LagLine = dict[str, Any]


async def explain_lags(storage: Storage) -> tuple[list[LagLine], LagLine | None]:
    """Return a `fetch_consumer_lag` line per group with `oldest_seconds`, `reason`, `remedy` and
    `paused`, and the transaction that holds the log's horizon. `reason` is None without lag. If a
    lock blocks the queries, the numbers are None and `reason` names its holder.
    """
    # Only on the Postgres log can an open transaction hold consumers back.
    horizon = await fetch_horizon_holder(storage.dsn) if storage.log.is_in_database else None
    consumers = await list_consumers(storage)
    try:
        lock = await fetch_lock_holder(storage.pool, MIN_BLOCKING_S)
        pauses = await PgReaderStatus(storage.pool).list_current()
        return [
            await _fetch_line(storage, consumer, horizon, lock, pauses) for consumer in consumers
        ], horizon
    except TransientError as error:
        # A locked table must not hide the diagnosis, which names the lock's holder.
        if error.code != LOCK_TIMEOUT_CODE:
            raise
        lock_error = await add_lock_holder(error, storage.dsn)
        unknown: LagLine = dict.fromkeys(("lag", "acknowledged", "end", "oldest_seconds"))
        unknown |= {"reason": lock_error.detail, "remedy": lock_error.remedy, "paused": False}
        return [asdict(consumer) | unknown for consumer in consumers], horizon


async def add_lock_holder(error: TransientError, dsn: str) -> TransientError:
    """Return the error with the transaction that holds the lock, if it can be found."""
    locks = await fetch_blocking_transactions(dsn, 0.0) if error.code == LOCK_TIMEOUT_CODE else []
    return (
        type(error)(
            format_lock_holder(locks[0]), code=LOCK_TIMEOUT_CODE, remedy=suggest_release(locks[0])
        )
        if locks
        else error
    )


async def _fetch_line(
    storage: Storage,
    consumer: ConsumerKey,
    horizon: LagLine | None,
    lock: LagLine | None,
    pauses: Sequence[Pause],
) -> LagLine:
    line = await fetch_consumer_lag(storage, consumer)
    if not line["lag"]:
        return line | {"oldest_seconds": None, "reason": None, "remedy": None, "paused": False}
    own_pauses = [
        pause for pause in pauses if (pause.reader, pause.topic) == (consumer.group, consumer.topic)
    ]
    oldest_at = await storage.log.fetch_oldest_pending_time(line["group"], line["topic"])
    waiting_s = (datetime.now(UTC) - oldest_at).total_seconds() if oldest_at else None
    reason, remedy = (
        (format_stall(own_pauses), own_pauses[0].remedy)
        if own_pauses
        else await _find_reason(storage, line, horizon, lock, waiting_s or 0.0)
    )
    return line | {
        "oldest_seconds": None if waiting_s is None else round(max(0.0, waiting_s), 1),
        "reason": reason,
        "remedy": remedy,
        "paused": bool(own_pauses),
    }


def format_stall(pauses: Sequence[Pause]) -> str:
    partitions = [str(pause.partition) for pause in pauses if pause.partition != ALL_PARTITIONS]
    where = f" in partition {', '.join(partitions)}" if partitions else ""
    return f"stalled{where}: {pauses[0].detail}"


async def _find_reason(
    storage: Storage, line: LagLine, horizon: LagLine | None, lock: LagLine | None, waiting_s: float
) -> tuple[str, str]:
    """Return the first cause that applies: no consumer, locked tables, held horizon, slow event, no
    progress, or normal processing.
    """
    # None means that the log does not know.
    if await storage.log.has_reader(line["group"], line["topic"]) is False:
        return (
            "no worker consumes it",
            "Start `anabranch up`, or `anabranch worker` with this stage.",
        )
    if lock is not None:
        return f"the tables are locked by {_format_transaction(lock)}", suggest_release(lock)
    if horizon is not None and horizon["seconds"] >= MIN_BLOCKING_S:
        return format_horizon_holder(horizon), suggest_release(horizon)
    work = await fetch_oldest_running_work(storage.pool, line["stage"], line["generation"])
    if work is not None and (work["seconds"] >= SLOW_S or work["attempts"] > 1):
        attempts = f", at attempt {work['attempts']}" if work["attempts"] > 1 else ""
        position = f"{work['topic']}[{work['partition']}]@{work['offset']}"
        return (
            f"document {work['document_id']} (part {work['part']}, {position}) has been at this "
            f"stage for {work['seconds']:.0f} s{attempts}",
            f"`anabranch documents show {work['document_id']}` shows its stages; "
            "`anabranch doctor` checks the model servers.",
        )
    if work is None and waiting_s >= SLOW_S:
        return (
            "no pending event is being processed",
            "Check that a worker with this stage runs, and read its log.",
        )
    return BEING_PROCESSED, ""


def format_horizon_holder(horizon: Mapping[str, Any]) -> str:
    return f"the log's horizon is held by {_format_transaction(horizon)}"


def format_lock_holder(lock: Mapping[str, Any]) -> str:
    tables = ", ".join(lock["tables"][:MAX_NAMED_TABLES]) + (
        f" and {len(lock['tables']) - MAX_NAMED_TABLES} more"
        if len(lock["tables"]) > MAX_NAMED_TABLES
        else ""
    )
    return (
        f"{tables} {'is' if len(lock['tables']) == 1 else 'are'} locked by "
        f"{_format_transaction(lock)}"
    )


def _format_transaction(transaction: Mapping[str, Any]) -> str:
    application = transaction["application"] or "an unnamed client"
    return (
        f"a transaction of {application} (pid {transaction['pid']}, {transaction['state']}, "
        f"{transaction['seconds'] or 0:.0f} s): {transaction['query']}"
    )


def suggest_release(horizon: Mapping[str, Any]) -> str:
    if horizon["pid"] is None:
        return (
            f"Finish the prepared transaction: commit prepared '{horizon['query']}', or roll it "
            "back."
        )
    return f"Wait for it, or terminate it: select pg_terminate_backend({horizon['pid']});"
