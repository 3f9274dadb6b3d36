"""Find orphaned rows and counts that do not add up."""

from __future__ import annotations

from sql.derived_tables import DERIVED_TABLES
from sql.errors import translate_database_errors
from sql.pool import Pool
from sql.query_loader import load_query


async def check_integrity(pool: Pool, *, assume_idle: bool = False) -> dict[str, int]:
    """Return table → number of offending rows in one snapshot; all zero for a consistent database.

    Rows of a revision that is neither visible nor superseded may still be in progress. With
    `assume_idle` (no stage has work left) they count as orphans, unless the revision failed. Raises
    DatabaseUnavailable.
    """
    with translate_database_errors():
        async with (
            pool.acquire() as connection,
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            counts = {
                table.name: await connection.fetchval(
                    load_query("orphaned_rows", table=table.name), assume_idle
                )
                for table in DERIVED_TABLES.values()
            }
            counts |= {
                row["name"]: row["rows"]
                for row in await connection.fetch(load_query("orphaned_other_rows"))
            }
            [lexical_mismatches] = await connection.fetch(load_query("lexical_count_mismatches"))
    return counts | dict(lexical_mismatches)
