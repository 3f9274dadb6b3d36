"""Check the tables: orphaned rows, counts that do not add up, and checksums.

Two logs that lead to the same documents give the same checksum, in whatever order their events
arrived.
"""

from __future__ import annotations

import re
from typing import Any

from schemas.ids import fingerprint
from sql.database import Pool, acquire, load_query
from sql.index.derived_tables import DERIVED_TABLES

CROSS_DOCUMENT_TABLES = ("visible", "lexical_counts", "corpus_counts")


async def check_integrity(pool: Pool, *, assume_idle: bool = False) -> dict[str, int]:
    """Return table → number of offending rows in one snapshot; all zero if the tables agree.

    Rows of a revision that is neither visible nor superseded may still be in progress. With
    `assume_idle` (no stage has work left) they count as orphans, unless the revision failed. Raises
    DatabaseUnavailable.
    """
    async with (
        acquire(pool) as connection,
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


async def compute_checksum(
    pool: Pool, *, include_history: bool = False, generation: str | None = None
) -> dict[str, Any]:
    """Return `{tables: {name: {rows, checksum}}, checksum}` of the live generation, or of the named
    one.

    The generation's name does not enter the checksum. `include_history` adds revisions, tombstones
    and history, which are equal only for the same log. Raises DatabaseUnavailable.
    """
    async with (
        acquire(pool) as connection,
        connection.transaction(isolation="repeatable_read", readonly=True),
    ):
        name = generation or await connection.fetchval(load_query("live_name"))
        rows = await connection.fetch(load_query("checksum_visible"), name, None)
        rows += await connection.fetch(load_query("checksum_history")) if include_history else []
    sums_by_table = {
        row["name"]: {"rows": row["rows"], "checksum": fingerprint(row["total"])} for row in rows
    }
    empty = {"rows": 0, "checksum": fingerprint("0")}
    names = _list_tables("checksum_visible")
    names += _list_tables("checksum_history") if include_history else []
    tables = {table: sums_by_table.get(table, empty) for table in names}
    return {"tables": tables, "checksum": fingerprint(tables)}


def _list_tables(query: str) -> list[str]:
    """List the tables of a checksum. Its result lacks those without rows."""
    return re.findall(r"select '(\w+)'", load_query(query))


async def find_differing_tables(pool: Pool, first: str, second: str) -> list[str]:
    """Return the tables in which two generations differ, compared in one snapshot.

    Documents whose visible revisions differ, because one generation is ahead, are excluded; then
    counts across documents are excluded as well. Raises DatabaseUnavailable.
    """
    async with (
        acquire(pool) as connection,
        connection.transaction(isolation="repeatable_read", readonly=True),
    ):
        n_differing_revisions = await connection.fetchval(
            load_query("count_differing_revisions"), first, second
        )
        sums = [
            {
                row["name"]: (row["rows"], row["total"])
                for row in await connection.fetch(load_query("checksum_visible"), *pair)
            }
            # Each generation over the documents whose visible revision both share.
            for pair in ((first, second), (second, first))
        ]
    return [
        table
        for table in _list_tables("checksum_visible")
        if not (n_differing_revisions and table in CROSS_DOCUMENT_TABLES)
        and sums[0].get(table) != sums[1].get(table)
    ]
