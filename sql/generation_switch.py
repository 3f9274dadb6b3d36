"""The switch to another generation, and back: one transaction that moves one pointer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from schemas.errors import AnabranchError, InvalidRequest, LogUnavailable, NotFound, PermanentError, TransientError
from sql.errors import translate_database_errors
from sql.pool import Connection, Pool
from sql.query_loader import load_query
from sql.visibility_lock import hold_visibility_lock

SWITCH_TIMEOUT_S = 5.0
"""So long flips are held at most."""
MIN_LOCK_WAIT_S = 1.0
PUBLISH_TIMEOUT_S = 5.0
POLL_S = 0.05
MAX_NAMED_DOCUMENTS = 20
"""Documents that a refusal names."""

PublishPromotion = Callable[[str, str], Awaitable[int]]
"""States in the log that the first generation answers from now on and the second stands by; returns the decision's offset once it is durable."""


@dataclass(frozen=True, slots=True)
class SwitchResult:
    """`moved` is False where the generation was the live one already."""

    generation: str
    previous: str | None
    has_moved: bool


async def switch_generation(
    pool: Pool, name: str, publish: PublishPromotion, *, expected_live: str | None = None, timeout_s: float = SWITCH_TIMEOUT_S
) -> SwitchResult:
    """Make `name` the generation that answers, if every document that the live one shows is settled in it; flips of the live one are held for at most
    `patience_s` until that is so. With `over` only if that is still the one that answers. The decision is in the log before the pointer moves: what a crash leaves, stage control completes.

    Raises NotFound, InvalidRequest (not built yet), PermanentError with code GENERATION_BEHIND that names documents, TransientError with code
    SWITCHED_MEANWHILE or VISIBILITY_LOCKED, LogUnavailable, DatabaseUnavailable; then nothing has changed.
    """
    with translate_database_errors():
        async with pool.acquire(timeout=60) as connection:
            live = await _fetch_live_name(connection)
            if live == name:
                return SwitchResult(name, await connection.fetchval("select previous from live_generation"), has_moved=False)
            if expected_live not in (None, live):
                raise _switched_meanwhile_error()
            await _check_target(connection, name)
            deadline = _now() + timeout_s
            async with hold_visibility_lock(connection, live, wait_s=max(timeout_s, MIN_LOCK_WAIT_S)):
                return await _switch_when_settled(connection, live, name, publish, deadline)


async def roll_back(pool: Pool, publish: PublishPromotion, *, timeout_s: float = SWITCH_TIMEOUT_S) -> SwitchResult:
    """Switch to the generation that answered before. Raises InvalidRequest with code NO_PREVIOUS_GENERATION, and what `switch` raises."""
    with translate_database_errors():
        row = await pool.fetchrow(
            "select l.name, l.previous, g.state from live_generation l left join generations g on g.name = l.previous where g.state <> 'dropped'"
        )
    if row is None:
        raise InvalidRequest("no generation answered before this one, or it was dropped", code="NO_PREVIOUS_GENERATION", remedy="Promote one by its name.")
    return await switch_generation(pool, row["previous"], publish, timeout_s=timeout_s)


async def _switch_when_settled(connection: Connection, live: str, name: str, publish: PublishPromotion, deadline: float) -> SwitchResult:
    while True:
        refusal = await _try_switch(connection, live, name, publish)
        if refusal is None:
            return SwitchResult(name, live, has_moved=True)
        if _now() >= deadline:
            raise refusal
        await asyncio.sleep(POLL_S)


async def _try_switch(connection: Connection, live: str, name: str, publish: PublishPromotion) -> AnabranchError | None:
    """One transaction; what keeps it from moving the pointer, else None."""
    async with connection.transaction():
        if await connection.fetchval("select name from live_generation for update") != live:
            raise _switched_meanwhile_error()
        await _check_target(connection, name)
        behind_rows = await connection.fetch(load_query("documents_behind"), live, name, MAX_NAMED_DOCUMENTS)
        if behind_rows:
            return _generation_behind_error(live, name, behind_rows)
        await connection.execute(load_query("promote"), name, await _publish_decision(publish, name, live))
        return None


async def _publish_decision(publish: PublishPromotion, name: str, live: str) -> int:
    """A log that is away must not hold up flips for longer than they may be."""
    try:
        async with asyncio.timeout(PUBLISH_TIMEOUT_S):
            return await publish(name, live)
    except TimeoutError as error:
        raise LogUnavailable(f"the log did not take the decision within {PUBLISH_TIMEOUT_S:g} s; it may take effect all the same") from error


def _switched_meanwhile_error() -> TransientError:
    return TransientError("another switch came first", code="SWITCHED_MEANWHILE", remedy="Look at `anabranch generations list`, then decide again.")


def _now() -> float:
    return asyncio.get_running_loop().time()


async def _fetch_live_name(connection: Connection) -> str:
    live = await connection.fetchval("select name from live_generation")
    if live is None:
        raise TransientError("there is no live generation yet", code="NO_GENERATION", remedy="Start a worker: it makes the first one.")
    return str(live)


async def _check_target(connection: Connection, name: str) -> None:
    state = await connection.fetchval("select state from generations where name = $1", name)
    if state is None or state == "dropped":
        raise NotFound(f"no generation {name!r}", code="NO_SUCH_GENERATION", remedy="`anabranch generations list` shows them.")
    if state == "building":
        remedy = "`anabranch generations show` says how far it is."
        raise InvalidRequest(f"generation {name} is still being built", code="GENERATION_NOT_BUILT", remedy=remedy)


def _generation_behind_error(live: str, name: str, behind_rows: list[Any]) -> AnabranchError:
    total = behind_rows[0]["total"]
    document_names = ", ".join(row["external_id"] or str(row["id"]) for row in behind_rows)
    suffix = f" and {total - len(behind_rows)} more" if total > len(behind_rows) else ""
    return PermanentError(
        f"{total} documents that {live} shows are not settled in {name}: {document_names}{suffix}",
        code="GENERATION_BEHIND",
        remedy="Wait until it has caught up; a document that failed in it stands in `/v1/dead-letters`.",
    )
