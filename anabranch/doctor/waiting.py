"""What is stuck in the pipeline, and why."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from anabranch.background.stuck import explained_lags, held_back, let_go, stands_still
from anabranch.composition.storage import Storage, unprepared_storage
from anabranch.doctor.connections import dsn_of
from anabranch.doctor.findings import Finding
from anabranch.settings import Settings
from schemas.ports.pauses import Pause
from sql.inspection import pending
from sql.pauses import PgPauses
from sql.pool import close_pool, open_pool

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
        pauses = await PgPauses(storage.pool).all()
    stuck = [_stuck(line) for line in lines if line["paused"] or (line["oldest_seconds"] or 0) >= STUCK_S]
    return [*_horizon(horizon), *stuck, *_elsewhere(pauses, lines)] or [_flowing(lines)]


def _elsewhere(pauses: Sequence[Pause], lines: Sequence[dict[str, Any]]) -> list[Finding]:
    """Readers of generations that do not answer."""
    told = {(line["group"], line["topic"]) for line in lines}
    return [Finding(f"reader: {pause.reader}", "warn", stands_still([pause]), pause.remedy) for pause in pauses if (pause.reader, pause.topic) not in told]


def _horizon(horizon: dict[str, Any] | None) -> list[Finding]:
    return [Finding("log horizon", "warn", held_back(horizon), let_go(horizon))] if horizon and horizon["seconds"] >= HELD_S else []


def _stuck(line: dict[str, Any]) -> Finding:
    detail = f"{line['lag']} of {line['topic']} wait, the oldest for {line['oldest_seconds'] or 0:.0f} s: {line['why']}"
    return Finding(f"stage: {line['stage']}", "warn", detail, line["remedy"] or "")


def _flowing(lines: Sequence[dict[str, Any]]) -> Finding:
    waiting = sum(line["lag"] for line in lines)
    return Finding("stages", "pass", f"{waiting} events wait, none for {STUCK_S:.0f} s" if waiting else "no event waits")


@asynccontextmanager
async def _storage(settings: Settings, dsn: str) -> AsyncIterator[Storage]:
    """Read only: nothing is migrated and no topic made."""
    pool = await open_pool(dsn, size=2, name="anabranch doctor")
    try:
        storage = unprepared_storage(settings, dsn, pool)
        try:
            yield storage
        finally:
            await storage.log.close()
    finally:
        await close_pool(pool)
