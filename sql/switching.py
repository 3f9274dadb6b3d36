"""The switch to another generation, and back: one transaction that moves one pointer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from schemas.errors import AnabranchError, InvalidRequest, LogUnavailable, NotFound, PermanentError, TransientError
from sql.errors import database_errors
from sql.flips import flips_held
from sql.pool import Connection, Pool
from sql.statements import statement

PATIENCE_S = 5.0
"""So long flips are held at most."""
LEAST_WAIT_S = 1.0
PUBLISH_S = 5.0
POLL_S = 0.05
NAMED = 20
"""Documents that a refusal names."""

PublishPromotion = Callable[[str, str], Awaitable[int]]
"""States in the log that the first generation answers from now on and the second stands by; returns the decision's offset once it is durable."""


@dataclass(frozen=True, slots=True)
class Switched:
    """`moved` is False where the generation was the live one already."""

    generation: str
    previous: str | None
    moved: bool


async def switch(pool: Pool, name: str, publish: PublishPromotion, *, over: str | None = None, patience_s: float = PATIENCE_S) -> Switched:
    """Make `name` the generation that answers, if every document that the live one shows is settled in it; flips of the live one are held for at most
    `patience_s` until that is so. With `over` only if that is still the one that answers. The decision is in the log before the pointer moves: what a crash leaves, stage control completes.

    Raises NotFound, InvalidRequest (not built yet), PermanentError with code GENERATION_BEHIND that names documents, TransientError with code
    SWITCHED_MEANWHILE or FLIPS_UNDER_WAY, LogUnavailable, DatabaseUnavailable; then nothing has changed.
    """
    with database_errors():
        async with pool.acquire(timeout=60) as connection:
            live = await _live(connection)
            if live == name:
                return Switched(name, await connection.fetchval("select previous from live_generation"), moved=False)
            if over not in (None, live):
                raise _switched()
            await _check_target(connection, name)
            deadline = _now() + patience_s
            async with flips_held(connection, live, wait_s=max(patience_s, LEAST_WAIT_S)):
                return await _once_settled(connection, live, name, publish, deadline)


async def roll_back(pool: Pool, publish: PublishPromotion, *, patience_s: float = PATIENCE_S) -> Switched:
    """Switch to the generation that answered before. Raises InvalidRequest with code NO_PREVIOUS_GENERATION, and what `switch` raises."""
    with database_errors():
        row = await pool.fetchrow(
            "select l.name, l.previous, g.state from live_generation l left join generations g on g.name = l.previous where g.state <> 'dropped'"
        )
    if row is None:
        raise InvalidRequest("no generation answered before this one, or it was dropped", code="NO_PREVIOUS_GENERATION", remedy="Promote one by its name.")
    return await switch(pool, row["previous"], publish, patience_s=patience_s)


async def _once_settled(connection: Connection, live: str, name: str, publish: PublishPromotion, deadline: float) -> Switched:
    while True:
        behind = await _try(connection, live, name, publish)
        if behind is None:
            return Switched(name, live, moved=True)
        if _now() >= deadline:
            raise behind
        await asyncio.sleep(POLL_S)


async def _try(connection: Connection, live: str, name: str, publish: PublishPromotion) -> AnabranchError | None:
    """One transaction; what keeps it from moving the pointer, else None."""
    async with connection.transaction():
        if await connection.fetchval("select name from live_generation for update") != live:
            raise _switched()
        await _check_target(connection, name)
        unsettled = await connection.fetch(statement("unsettled"), live, name, NAMED)
        if unsettled:
            return _behind(live, name, unsettled)
        await connection.execute(statement("promote"), name, await _published(publish, name, live))
        return None


async def _published(publish: PublishPromotion, name: str, live: str) -> int:
    """A log that is away must not hold up flips for longer than they may be."""
    try:
        async with asyncio.timeout(PUBLISH_S):
            return await publish(name, live)
    except TimeoutError as error:
        raise LogUnavailable(f"the log did not take the decision within {PUBLISH_S:g} s; it may take effect all the same") from error


def _switched() -> TransientError:
    return TransientError("another switch came first", code="SWITCHED_MEANWHILE", remedy="Look at `anabranch generations list`, then decide again.")


def _now() -> float:
    return asyncio.get_running_loop().time()


async def _live(connection: Connection) -> str:
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


def _behind(live: str, name: str, unsettled: list[Any]) -> AnabranchError:
    total = unsettled[0]["total"]
    named = ", ".join(row["external_id"] or str(row["id"]) for row in unsettled)
    more = f" and {total - len(unsettled)} more" if total > len(unsettled) else ""
    return PermanentError(
        f"{total} documents that {live} shows are not settled in {name}: {named}{more}",
        code="GENERATION_BEHIND",
        remedy="Wait until it has caught up; a document that failed in it stands in `/v1/dead-letters`.",
    )
