"""What is stuck in the pipeline, and why."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from anabranch.background.stuck import explained_lags, held_back, let_go, locked_by, named_lock, stands_still
from anabranch.composition.storage import Storage, unprepared_storage
from anabranch.doctor.connections import LOCK_WAIT_S, dsn_of
from anabranch.doctor.findings import Check, Finding
from anabranch.settings import Settings
from schemas.errors import TransientError
from schemas.generations import Generation
from schemas.ports.pauses import Pause
from sql.generations import PgGenerations
from sql.inspection import held_locks, pending
from sql.pauses import PgPauses
from sql.pool import close_pool, open_pool, waits_for_locks

STUCK_S = 30.0
"""What waits for less is on its way."""
HELD_S = 5.0
"""A transaction is expected to commit within that."""


async def stages(settings: Settings) -> Sequence[Finding]:
    """Nothing where no database is at hand, or where its tables are not those of this version."""
    dsn = dsn_of(settings)
    if dsn is None or await pending(dsn):
        return []
    async with _storage(settings, dsn) as storage:
        lines, horizon = await explained_lags(storage)
        pauses, live = await PgPauses(storage.pool).all(), await PgGenerations(storage.pool).live()
    if unseen := next((line for line in lines if line["lag"] is None), None):
        return [*_horizon(horizon), Finding("stages", "warn", f"how far they are cannot be seen: {unseen['why']}", unseen["remedy"])]
    stuck = [_stuck(line, live) for line in lines if line["paused"] or (line["oldest_seconds"] or 0) >= STUCK_S]
    return [*_horizon(horizon), *stuck, *_elsewhere(pauses, lines)] or [_flowing(lines)]


def _elsewhere(pauses: Sequence[Pause], lines: Sequence[dict[str, Any]]) -> list[Finding]:
    """Readers that have nothing waiting, or that no generation of ours has any more."""
    told = {(line["group"], line["topic"]) for line in lines if line["lag"]}
    return [Finding(f"reader: {pause.reader}", "warn", stands_still([pause]), pause.remedy) for pause in pauses if (pause.reader, pause.topic) not in told]


def _horizon(horizon: dict[str, Any] | None) -> list[Finding]:
    return [Finding("log horizon", "warn", held_back(horizon), let_go(horizon))] if horizon and horizon["seconds"] >= HELD_S else []


async def locks(settings: Settings) -> Sequence[Finding]:
    """Nothing where all tables can be written."""
    dsn = dsn_of(settings)
    return [Finding("locks", "warn", locked_by(lock), let_go(lock)) for lock in await held_locks(dsn, HELD_S)] if dsn else []


async def whose_lock(settings: Settings, check: Check) -> Sequence[Finding]:
    """What a check finds. Raises what it raises, with who holds the lock that keeps it from looking."""
    try:
        return await check()
    except TransientError as error:
        raise await named_lock(error, dsn_of(settings) or "") from error


def _stuck(line: dict[str, Any], live: Generation | None) -> Finding:
    """By its stage where it is for what answers, else by its group."""
    answering = line["generation"] in (None, live.name if live else None)
    detail = f"{line['lag']} of {line['topic']} wait, the oldest for {line['oldest_seconds'] or 0:.0f} s: {line['why']}"
    return Finding(f"stage: {line['stage']}" if answering else f"reader: {line['group']}", "warn", detail, line["remedy"] or "")


def _flowing(lines: Sequence[dict[str, Any]]) -> Finding:
    waiting = sum(line["lag"] for line in lines)
    return Finding("stages", "pass", f"{waiting} events wait, none for {STUCK_S:.0f} s" if waiting else "no event waits")


@asynccontextmanager
async def _storage(settings: Settings, dsn: str) -> AsyncIterator[Storage]:
    """Read only: nothing is migrated and no topic made."""
    pool = await open_pool(dsn, size=2, name="anabranch doctor", settings=waits_for_locks(LOCK_WAIT_S))
    try:
        storage = unprepared_storage(settings, dsn, pool)
        try:
            yield storage
        finally:
            await storage.log.close()
    finally:
        await close_pool(pool)
