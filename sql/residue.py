"""What should not be there: rows that neither answer nor are on their way to, and counts that do not add up."""

from __future__ import annotations

from sql.derived_tables import TABLES
from sql.errors import database_errors
from sql.pool import Pool
from sql.statements import statement


async def residue(pool: Pool, *, settled: bool = False) -> dict[str, int]:
    """Place → rows, of one moment; all zero where everything is as it should be. A revision that is neither visible nor over may be on its way: with
    `settled`, when no stage has anything left to do, its rows count too, unless it failed. Raises DatabaseUnavailable."""
    with database_errors():
        async with pool.acquire() as connection, connection.transaction(isolation="repeatable_read", readonly=True):
            query = statement("residue")
            found = {table.name: await connection.fetchval(query.replace("the_table", table.name), settled) for table in TABLES.values()}
            found |= {row["name"]: row["rows"] for row in await connection.fetch(statement("residue_elsewhere"))}
            [words] = await connection.fetch(statement("residue_words"))
    return found | dict(words)
