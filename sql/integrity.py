"""What should not be there: rows that neither answer nor are on their way to, and counts that do not add up."""

from __future__ import annotations

from sql.derived_tables import DERIVED_TABLES
from sql.errors import translate_database_errors
from sql.pool import Pool
from sql.query_loader import load_query


async def check_integrity(pool: Pool, *, assume_idle: bool = False) -> dict[str, int]:
    """Place → rows, of one moment; all zero where everything is as it should be. A revision that is neither visible nor over may be on its way: with
    `settled`, when no stage has anything left to do, its rows count too, unless it failed. Raises DatabaseUnavailable."""
    with translate_database_errors():
        async with pool.acquire() as connection, connection.transaction(isolation="repeatable_read", readonly=True):
            query = load_query("orphaned_rows")
            counts = {table.name: await connection.fetchval(query.replace("the_table", table.name), assume_idle) for table in DERIVED_TABLES.values()}
            counts |= {row["name"]: row["rows"] for row in await connection.fetch(load_query("orphaned_other_rows"))}
            [lexical_mismatches] = await connection.fetch(load_query("lexical_count_mismatches"))
    return counts | dict(lexical_mismatches)
