"""`anabranch db`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Annotated, Any, TypeVar

from cyclopts import App, Parameter

from anabranch.cli.exits import FAILED, OK, PARTLY
from anabranch.cli.options import Local
from anabranch.cli.output import print_table

app = App(name="db", help="The tables: migrations, checksum and residue.", result_action="return_value")
T = TypeVar("T")
Flag = Parameter(negative="")
DEFAULT = Local()


@app.command
def migrate(*, dry_run: Annotated[bool, Flag] = False, common: Local = DEFAULT) -> int:
    """Apply the migrations that are missing.

    Parameters
    ----------
    dry_run
        Only say which.
    """
    from anabranch.cli.storing import beginning_database_url, database_url
    from sql.inspection import pending
    from sql.migrate import migrate as apply

    settings = common.settings()
    work = _with_database(database_url(settings), pending) if dry_run else _with_database(beginning_database_url(settings), apply)
    files = asyncio.run(work)
    if common.json:
        common.show({"pending" if dry_run else "applied": files})
    else:
        print("\n".join(files) if files else "nothing to do")
    return 0


@app.command
def status(*, common: Local = DEFAULT) -> int:
    """Which migrations are applied."""
    from anabranch.cli.storing import database_url
    from sql.inspection import migration_status

    rows = asyncio.run(_with_database(database_url(common.settings()), migration_status))
    if common.json:
        common.show({"migrations": rows})
    else:
        print_table(("file", "applied_at"), [(row["file"], row["applied_at"] or "pending") for row in rows])
    return 0


@app.command
def checksum(*, everything: Annotated[bool, Parameter(name="--all", negative="")] = False, common: Local = DEFAULT) -> int:
    """One sum over what is visible: equal for two histories that end in the same documents.

    Parameters
    ----------
    everything
        With revisions, tombstones and history: equal for the same log.
    """
    from anabranch.cli.storing import database_url
    from sql.checksum import checksum as of_tables
    from sql.pool import close_pool, open_pool

    async def run(dsn: str) -> dict[str, Any]:
        pool = await open_pool(dsn, size=2, name="anabranch checksum")
        try:
            return dict(await of_tables(pool, everything=everything))
        finally:
            await close_pool(pool)

    found = asyncio.run(_with_database(database_url(common.settings()), run))
    if common.json:
        common.show(found)
    else:
        print_table(("table", "rows", "checksum"), [(name, table["rows"], table["checksum"]) for name, table in found["tables"].items()])
        print(f"checksum  {found['checksum']}")
    return 0


@app.command
def residue(*, settled: Annotated[bool, Flag] = False, common: Local = DEFAULT) -> int:
    """Rows that neither answer nor are on their way to, and counts that do not add up. Exit code 1 if there are any.

    Parameters
    ----------
    settled
        Nothing is on its way: what is not visible is left over.
    """
    from anabranch.cli.storing import database_url
    from sql.pool import close_pool, open_pool
    from sql.residue import residue as of_tables

    async def run(dsn: str) -> dict[str, int]:
        pool = await open_pool(dsn, size=1, name="anabranch residue")
        try:
            return await of_tables(pool, settled=settled)
        finally:
            await close_pool(pool)

    found = asyncio.run(_with_database(database_url(common.settings()), run))
    total = sum(found.values())
    if common.json:
        common.show({"places": found, "rows": total})
    else:
        print_table(("place", "rows"), list(found.items()))
    return FAILED if total else OK


@app.command
def scrub(*, common: Local = DEFAULT) -> int:
    """Write all tables anew, so that no file of Postgres holds deleted rows. Each table is locked while it is written.

    Exit code 5 if a table was in use, or the write-ahead log is held back."""
    from anabranch.cli.storing import database_url
    from sql.pool import close_pool, open_pool
    from sql.scrubbing import Scrubbed
    from sql.scrubbing import scrub as scrub_tables

    async def run(dsn: str) -> Scrubbed:
        pool = await open_pool(dsn, size=1, name="anabranch scrub")
        try:
            return await scrub_tables(pool, limit_bytes=None)
        finally:
            await close_pool(pool)

    found = asyncio.run(_with_database(database_url(common.settings()), run))
    if common.json:
        common.show({"left": list(found.tables), "write_ahead_log": found.log})
    else:
        print("\n".join(f"in use: {table}" for table in found.tables) or "all tables written anew")
        if found.log:
            print("the write-ahead log keeps what was deleted until Postgres removes it")
    return PARTLY if found.tables or found.log else OK


async def _with_database(address: AbstractAsyncContextManager[str], work: Callable[[str], Awaitable[T]]) -> T:
    async with address as dsn:
        return await work(dsn)
