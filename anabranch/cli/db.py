"""`anabranch db`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from cyclopts import Parameter

from anabranch.cli.errors import FAILED, OK, PARTIAL_FAILURE
from anabranch.cli.options import LOCAL, LocalOptions, make_group
from anabranch.cli.output import Column, print_table

if TYPE_CHECKING:
    from sql.database import Pool

app = make_group("db")
T = TypeVar("T")


@app.command
def migrate(*, dry_run: bool = False, common: LocalOptions = LOCAL) -> int:
    """Apply pending migrations.

    Args:
        dry_run: List pending migrations without applying them.
    """
    from sql.operations.migrate import migrate as apply_migrations
    from sql.operations.monitoring import list_pending_migrations

    work = list_pending_migrations if dry_run else apply_migrations
    files = _run_with_database(common, work, may_create=not dry_run)
    key = "pending" if dry_run else "applied"
    return common.show({key: files}, lambda: print("\n".join(files) if files else "nothing to do"))


@app.command
def status(*, common: LocalOptions = LOCAL) -> int:
    """List migrations with the time at which they were applied."""
    from sql.operations.monitoring import fetch_migration_status

    rows = _run_with_database(common, fetch_migration_status)
    columns: tuple[Column, ...] = (
        "file",
        ("applied_at", lambda row: row["applied_at"] or "pending"),
    )
    return common.show({"migrations": rows}, lambda: common.print_items(rows, columns))


@app.command
def checksum(
    *, everything: Annotated[bool, Parameter(name="--all")] = False, common: LocalOptions = LOCAL
) -> int:
    """Compute a checksum of the visible rows. It is equal for histories that end in the same
    documents.

    Args:
        everything: Include revisions, tombstones and history. The checksum is then equal for the
            same log only.
    """
    from sql.operations.integrity import compute_checksum

    async def run(pool: Pool) -> dict[str, Any]:
        return dict(await compute_checksum(pool, include_history=everything))

    result = _run_with_pool(common, run, size=2)
    if not common.print_if_json(result):
        print_table(
            ("table", "rows", "checksum"),
            [(name, table["rows"], table["checksum"]) for name, table in result["tables"].items()],
        )
        print(f"checksum  {result['checksum']}")
    return 0


@app.command
def check(*, drained: bool = False, common: LocalOptions = LOCAL) -> int:
    """Find orphaned rows, and counts that do not add up. Exits 1 if there are any.

    Args:
        drained: Assume that no stage has work left, so every row that is not visible is an orphan.
    """
    from sql.operations.integrity import check_integrity

    problem_counts = _run_with_pool(common, lambda pool: check_integrity(pool, assume_idle=drained))
    total = sum(problem_counts.values())
    common.show(
        {"problems": problem_counts, "rows": total},
        lambda: print_table(("problem", "rows"), list(problem_counts.items())),
    )
    return FAILED if total else OK


@app.command
def scrub(*, common: LocalOptions = LOCAL) -> int:
    """Rewrite all tables, so that no file of Postgres holds deleted rows.

    Each table is locked while it is rewritten. Exits 5 if a table was in use, or Postgres has not
    removed the old write-ahead log yet.
    """
    from sql.operations.scrubber import scrub_tables

    result = _run_with_pool(common, lambda pool: scrub_tables(pool, limit_bytes=None))
    body = {"tables_in_use": list(result.remaining_tables)}
    if not common.print_if_json(body | {"write_ahead_log": result.is_wal_remaining}):
        print(
            "\n".join(f"in use: {table}" for table in result.remaining_tables)
            or "all tables rewritten"
        )
        if result.is_wal_remaining:
            print("the write-ahead log holds deleted rows until Postgres removes it")
    return PARTIAL_FAILURE if result.remaining_tables or result.is_wal_remaining else OK


def _run_with_pool(
    common: LocalOptions, work: Callable[[Pool], Awaitable[T]], *, size: int = 1
) -> T:
    from sql.database import use_pool

    async def run(dsn: str) -> T:
        async with use_pool(dsn, size=size, name="anabranch db") as pool:
            return await work(pool)

    return _run_with_database(common, run)


def _run_with_database(
    common: LocalOptions, work: Callable[[str], Awaitable[T]], *, may_create: bool = False
) -> T:
    from anabranch.cli.database import open_command_database

    async def run() -> T:
        async with open_command_database(common.load_settings(), may_create=may_create) as dsn:
            return await work(dsn)

    return asyncio.run(run())
