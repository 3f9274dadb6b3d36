"""Switch to another generation and roll back: one transaction moves one pointer, while no other one
activates a revision.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from schemas.errors import (
    AnabranchError,
    InvalidRequest,
    LogUnavailable,
    PermanentError,
    TransientError,
)
from sql.database import UNLOCK, Connection, Pool, acquire, fetch_row, load_query
from sql.index.generations import (
    generation_not_built_error,
    no_live_generation_error,
    unknown_generation_error,
)

SWITCH_TIMEOUT_S = 5.0
"""Longest time for which a switch blocks the activation of revisions."""
MIN_LOCK_WAIT_S = 1.0
PUBLISH_TIMEOUT_S = 5.0
POLL_S = 0.05
MAX_NAMED_DOCUMENTS = 20
"""Most documents that an error names."""

PublishPromotion = Callable[[str, str], Awaitable[int]]
"""Publishes that the first generation is live and the second on standby.

Returns the offset of the decision once it is durable.
"""


@dataclass(frozen=True, slots=True)
class SwitchResult:
    """The live generation after a switch. `has_moved` is False if it was live before."""

    generation: str
    previous: str | None
    has_moved: bool


async def switch_generation(
    pool: Pool,
    name: str,
    publish: PublishPromotion,
    *,
    expected_live: str | None = None,
    timeout_s: float = SWITCH_TIMEOUT_S,
) -> SwitchResult:
    """Make `name` the live generation once it has settled every document that the live one shows.

    Blocks the activation of revisions in the live generation for at most `timeout_s` until that
    holds. With `expected_live`, only if that generation is still live. The decision is published
    before the pointer moves; after a crash between the two, stage `control` moves it.

    Raises NotFound, InvalidRequest (not built yet), PermanentError with code GENERATION_BEHIND that
    names documents, TransientError with code SWITCHED_MEANWHILE or VISIBILITY_LOCKED,
    LogUnavailable or DatabaseUnavailable; nothing has changed then.
    """
    async with acquire(pool, timeout_s=60) as connection:
        live: str | None = await connection.fetchval(load_query("live_name"))
        if live is None:
            raise no_live_generation_error()
        if live == name:
            return SwitchResult(
                name, await connection.fetchval(load_query("previous_name")), has_moved=False
            )
        if expected_live not in (None, live):
            raise _switched_meanwhile_error()
        await _check_target(connection, name)
        deadline = _now() + timeout_s
        # Without it new revisions of the live generation would keep the other one behind.
        async with hold_visibility_lock(connection, live, wait_s=max(timeout_s, MIN_LOCK_WAIT_S)):
            return await _switch_when_settled(connection, live, name, publish, deadline)


async def roll_back(
    pool: Pool, publish: PublishPromotion, *, timeout_s: float = SWITCH_TIMEOUT_S
) -> SwitchResult:
    """Switch to the previous generation.

    Raises InvalidRequest with code NO_PREVIOUS_GENERATION, and the errors of `switch_generation`.
    """
    row = await fetch_row(pool, "previous_generation")
    if row is None:
        raise InvalidRequest(
            "There is no previous generation, or it was dropped.",
            code="NO_PREVIOUS_GENERATION",
            remedy="Promote a generation by name.",
        )
    return await switch_generation(pool, row["previous"], publish, timeout_s=timeout_s)


async def _switch_when_settled(
    connection: Connection, live: str, name: str, publish: PublishPromotion, deadline: float
) -> SwitchResult:
    while True:
        refusal = await _try_switch(connection, live, name, publish)
        if refusal is None:
            return SwitchResult(name, live, has_moved=True)
        if _now() >= deadline:
            raise refusal
        await asyncio.sleep(POLL_S)


async def _try_switch(
    connection: Connection, live: str, name: str, publish: PublishPromotion
) -> AnabranchError | None:
    """Try to switch in one transaction. Returns the error that prevents it, else None."""
    async with connection.transaction():
        # Row lock: excludes another switch and a drop of the target until the commit.
        if await connection.fetchval(load_query("lock_live_generation")) != live:
            raise _switched_meanwhile_error()
        await _check_target(connection, name)
        behind_rows = await connection.fetch(
            load_query("documents_behind"), live, name, MAX_NAMED_DOCUMENTS
        )
        if behind_rows:
            # Not raised: the caller retries until its deadline, outside this transaction.
            return _generation_behind_error(live, name, behind_rows)
        await connection.execute(
            # Published first: the log decides, and after a crash stage `control` moves the pointer.
            load_query("promote"),
            name,
            await _publish_decision(publish, name, live),
        )
        return None


async def _publish_decision(publish: PublishPromotion, name: str, live: str) -> int:
    # Bounded: an unavailable log must not block activation for longer than a switch may.
    try:
        async with asyncio.timeout(PUBLISH_TIMEOUT_S):
            return await publish(name, live)
    except TimeoutError as error:
        raise LogUnavailable(
            f"Timed out publishing the switch after {PUBLISH_TIMEOUT_S:g} s. It may still take "
            "effect."
        ) from error


def _switched_meanwhile_error() -> TransientError:
    return TransientError(
        "Another switch came first.",
        code="SWITCHED_MEANWHILE",
        remedy="Check `anabranch generations list`, then try again.",
    )


def _now() -> float:
    return asyncio.get_running_loop().time()


async def _check_target(connection: Connection, name: str) -> None:
    state = await connection.fetchval(load_query("generation_state"), name)
    if state is None or state == "dropped":
        raise unknown_generation_error(name)
    if state == "building":
        raise generation_not_built_error(name)


def _generation_behind_error(live: str, name: str, behind_rows: list[Any]) -> AnabranchError:
    total = behind_rows[0]["total"]
    document_names = ", ".join(row["external_id"] or str(row["id"]) for row in behind_rows)
    suffix = f" and {total - len(behind_rows)} more" if total > len(behind_rows) else ""
    return PermanentError(
        f"{total} documents that are visible in {live} are not settled in {name}: "
        f"{document_names}{suffix}.",
        code="GENERATION_BEHIND",
        remedy=(
            f"Wait until {name} has caught up. `GET /v1/dead-letters` lists documents that failed "
            "in it."
        ),
    )


async def share_visibility_lock(connection: Connection, generation: str) -> None:
    """Share the lock with other activating transactions; waits while `hold_visibility_lock` is
    active.

    Call it first in the transaction. A transaction that waits with an id or other locks would block
    others, above all readers of the log.
    """
    await connection.execute(
        "select pg_advisory_xact_lock_shared(hashtext($1))", _format_visibility_lock(generation)
    )


@asynccontextmanager
async def hold_visibility_lock(
    connection: Connection, generation: str, *, wait_s: float
) -> AsyncIterator[None]:
    """Block the activation of revisions in a generation, while it is compared with another.

    Waits until activating transactions have committed. Raises TransientError with code
    VISIBILITY_LOCKED if one takes longer than `wait_s`; others wait behind it meanwhile. Call it
    outside any transaction: an open one blocks readers of the log, and with them the generation
    that has to catch up.
    """
    name = _format_visibility_lock(generation)
    try:
        try:
            async with asyncio.timeout(wait_s):
                await connection.execute("select pg_advisory_lock(hashtext($1))", name)
        except TimeoutError:
            raise TransientError(
                f"Timed out after {wait_s:g} s waiting for a transaction that activates a "
                f"revision in {generation}.",
                code="VISIBILITY_LOCKED",
                remedy="Run `anabranch topics lag` to see the oldest transaction, then try again.",
            ) from None
        yield
    finally:
        # Even after a cancelled wait: the lock may have been granted at that moment.
        await connection.execute(UNLOCK, name)


def _format_visibility_lock(generation: str) -> str:
    return f"visible revisions of {generation}"
