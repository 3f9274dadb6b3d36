"""Checks for stalled stages and locked tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anabranch.composition.storage import open_unprepared_storage
from anabranch.config.settings import Settings
from anabranch.doctor.check_runner import Check
from anabranch.doctor.connections import find_dsn, use_doctor_pool
from schemas.errors import TransientError
from schemas.findings import Finding
from services.monitoring.lag_diagnosis import (
    add_lock_holder,
    explain_lags,
    format_horizon_holder,
    format_lock_holder,
    format_stall,
    suggest_release,
)
from sql.index.generations import PgGenerations
from sql.operations.monitoring import (
    PgReaderStatus,
    fetch_blocking_transactions,
    list_pending_migrations,
)

STALL_THRESHOLD_S = 30.0
"""Events that wait for less are in progress."""
LOCK_THRESHOLD_S = 5.0
"""Time within which a transaction is expected to commit."""


async def check_stages(settings: Settings) -> Sequence[Finding]:
    """Report stalled stages. Skipped without a database, or with pending migrations."""
    dsn = find_dsn(settings)
    # The doctor migrates nothing, and its queries need the current tables.
    if dsn is None or await list_pending_migrations(dsn):
        return []
    async with use_doctor_pool(dsn) as pool:
        storage = open_unprepared_storage(settings, dsn, pool)
        try:
            lags, horizon = await explain_lags(storage)
        finally:
            await storage.log.close()
        pauses = await PgReaderStatus(pool).list_current()
        live = await PgGenerations(pool).fetch_live()
    if unknown_lag := next((lag for lag in lags if lag["lag"] is None), None):
        return [
            *_check_log_horizon(horizon),
            Finding(
                "stages", "warn", f"lag unknown: {unknown_lag['reason']}", unknown_lag["remedy"]
            ),
        ]
    stalled = []
    for lag in lags:
        if lag["paused"] or (lag["oldest_seconds"] or 0) >= STALL_THRESHOLD_S:
            # By stage for the live generation, else by consumer group.
            is_live = lag["generation"] in (None, live.name if live else None)
            name = f"stage: {lag['stage']}" if is_live else f"reader: {lag['group']}"
            detail = (
                f"{lag['lag']} pending events on {lag['topic']}, the oldest for "
                f"{lag['oldest_seconds'] or 0:.0f} s: {lag['reason']}"
            )
            stalled.append(Finding(name, "warn", detail, lag["remedy"] or ""))
    # Readers with lag are reported with its cause already.
    lagging_readers = {(lag["group"], lag["topic"]) for lag in lags if lag["lag"]}
    other_readers = [
        Finding(f"reader: {pause.reader}", "warn", format_stall([pause]), pause.remedy)
        for pause in pauses
        if (pause.reader, pause.topic) not in lagging_readers
    ]
    n_pending = sum(lag["lag"] for lag in lags)
    return [*_check_log_horizon(horizon), *stalled, *other_readers] or [
        Finding(
            "stages",
            "pass",
            f"{n_pending} pending events, none for {STALL_THRESHOLD_S:.0f} s"
            if n_pending
            else "no pending events",
        )
    ]


def _check_log_horizon(horizon: dict[str, Any] | None) -> list[Finding]:
    return (
        [Finding("log horizon", "warn", format_horizon_holder(horizon), suggest_release(horizon))]
        if horizon and horizon["seconds"] >= LOCK_THRESHOLD_S
        else []
    )


async def check_locks(settings: Settings) -> Sequence[Finding]:
    """Report transactions that block writes to a table."""
    dsn = find_dsn(settings)
    return (
        [
            Finding("locks", "warn", format_lock_holder(lock), suggest_release(lock))
            for lock in await fetch_blocking_transactions(dsn, LOCK_THRESHOLD_S)
        ]
        if dsn
        else []
    )


async def run_naming_lock_holder(settings: Settings, check: Check) -> Sequence[Finding]:
    """Run a check; add the lock holder to a TransientError that it raises."""
    try:
        return await check()
    except TransientError as error:
        raise await add_lock_holder(error, find_dsn(settings) or "") from error
