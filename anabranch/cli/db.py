"""`anabranch db`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Annotated, Any, TypeVar

from cyclopts import App, Parameter

from anabranch.cli.exit_codes import FAILED, OK, PARTIAL_FAILURE
from anabranch.cli.options import LocalOptions
from anabranch.cli.output import print_table

app = App(name="db", help="The tables: migrations, checksum and residue.", result_action="return_value")
T = TypeVar("T")
Flag = Parameter(negative="")
DEFAULT = LocalOptions()


@app.command
def migrate(*, dry_run: Annotated[bool, Flag] = False, common: LocalOptions = DEFAULT) -> int:
    """Apply the migrations that are missing.

    Parameters
    ----------
    dry_run
        Only say which.
    """
    from anabranch.cli.database import open_command_database, open_or_initialize_database
    from sql.inspection import list_pending_migrations
    from sql.migrate import migrate as apply_migrations

    settings = common.load_settings()
    work = (
        _run_with_database(open_command_database(settings), list_pending_migrations)
        if dry_run
        else _run_with_database(open_or_initialize_database(settings), apply_migrations)
    )
    files = asyncio.run(work)
    if common.is_json:
        common.print_result({"pending" if dry_run else "applied": files})
    else:
        print("\n".join(files) if files else "nothing to do")
    return 0


@app.command
def status(*, common: LocalOptions = DEFAULT) -> int:
    """Which migrations are applied."""
    from anabranch.cli.database import open_command_database
    from sql.inspection import fetch_migration_status

    rows = asyncio.run(_run_with_database(open_command_database(common.load_settings()), fetch_migration_status))
    if common.is_json:
        common.print_result({"migrations": rows})
    else:
        print_table(("file", "applied_at"), [(row["file"], row["applied_at"] or "pending") for row in rows])
    return 0


@app.command
def checksum(*, everything: Annotated[bool, Parameter(name="--all", negative="")] = False, common: LocalOptions = DEFAULT) -> int:
    """One sum over what is visible: equal for two histories that end in the same documents.

    Parameters
    ----------
    everything
        With revisions, tombstones and history: equal for the same log.
    """
    from anabranch.cli.database import open_command_database
    from sql.checksum import compute_checksum
    from sql.pool import close_pool, open_pool

    async def run(dsn: str) -> dict[str, Any]:
        pool = await open_pool(dsn, size=2, name="anabranch checksum")
        try:
            return dict(await compute_checksum(pool, include_history=everything))
        finally:
            await close_pool(pool)

    result = asyncio.run(_run_with_database(open_command_database(common.load_settings()), run))
    if common.is_json:
        common.print_result(result)
    else:
        print_table(("table", "rows", "checksum"), [(name, table["rows"], table["checksum"]) for name, table in result["tables"].items()])
        print(f"checksum  {result['checksum']}")
    return 0


@app.command
def residue(*, settled: Annotated[bool, Flag] = False, common: LocalOptions = DEFAULT) -> int:
    """Rows that neither answer nor are on their way to, and counts that do not add up. Exit code 1 if there are any.

    Parameters
    ----------
    settled
        Nothing is on its way: what is not visible is left over.
    """
    from anabranch.cli.database import open_command_database
    from sql.integrity import check_integrity
    from sql.pool import close_pool, open_pool

    async def run(dsn: str) -> dict[str, int]:
        pool = await open_pool(dsn, size=1, name="anabranch residue")
        try:
            return await check_integrity(pool, assume_idle=settled)
        finally:
            await close_pool(pool)

    problem_counts = asyncio.run(_run_with_database(open_command_database(common.load_settings()), run))
    total = sum(problem_counts.values())
    if common.is_json:
        common.print_result({"places": problem_counts, "rows": total})
    else:
        print_table(("place", "rows"), list(problem_counts.items()))
    return FAILED if total else OK


@app.command
def scrub(*, common: LocalOptions = DEFAULT) -> int:
    """Write all tables anew, so that no file of Postgres holds deleted rows. Each table is locked while it is written.

    Exit code 5 if a table was in use, or the write-ahead log is held back."""
    from anabranch.cli.database import open_command_database
    from sql.pool import close_pool, open_pool
    from sql.scrubber import ScrubResult, scrub_tables

    async def run(dsn: str) -> ScrubResult:
        pool = await open_pool(dsn, size=1, name="anabranch scrub")
        try:
            return await scrub_tables(pool, limit_bytes=None)
        finally:
            await close_pool(pool)

    result = asyncio.run(_run_with_database(open_command_database(common.load_settings()), run))
    if common.is_json:
        common.print_result({"left": list(result.remaining_tables), "write_ahead_log": result.is_wal_remaining})
    else:
        print("\n".join(f"in use: {table}" for table in result.remaining_tables) or "all tables written anew")
        if result.is_wal_remaining:
            print("the write-ahead log keeps what was deleted until Postgres removes it")
    return PARTIAL_FAILURE if result.remaining_tables or result.is_wal_remaining else OK


async def _run_with_database(address: AbstractAsyncContextManager[str], work: Callable[[str], Awaitable[T]]) -> T:
    async with address as dsn:
        return await work(dsn)
