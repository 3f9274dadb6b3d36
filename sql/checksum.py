"""One sum over the tables: two histories that end in the same documents give the same, whatever the order in which rows came."""

from __future__ import annotations

from typing import Any

from schemas.ids import fingerprint
from sql.errors import database_errors
from sql.pool import Pool
from sql.statements import statement

VISIBLE = (
    *("documents", "texts", "parent_chunks", "child_chunks", "chunk_vectors", "chunk_states", "entity_mentions", "relations", "claims", "visible"),
    *("lexical_counts", "corpus_counts"),
)
OF_ALL_DOCUMENTS = ("visible", "lexical_counts", "corpus_counts")
KEPT = ("document_revisions", "tombstones", "chunk_history")


async def checksum(pool: Pool, *, everything: bool = False, generation: str | None = None) -> dict[str, Any]:
    """`{tables: {name: {rows, checksum}}, checksum}` of the live generation, or the named one. The generation's name is not part of it.

    `everything` adds revisions, tombstones and history, which are equal only for the same log. Raises DatabaseUnavailable.
    """
    with database_errors():
        async with pool.acquire() as connection, connection.transaction(isolation="repeatable_read", readonly=True):
            name = generation or await connection.fetchval("select name from live_generation")
            rows = await connection.fetch(statement("checksum_visible"), name, None)
            rows += await connection.fetch(statement("checksum_kept")) if everything else []
    found = {row["name"]: {"rows": row["rows"], "checksum": fingerprint(row["total"])} for row in rows}
    empty = {"rows": 0, "checksum": fingerprint("0")}
    tables = {table: found.get(table, empty) for table in (VISIBLE + KEPT if everything else VISIBLE)}
    return {"tables": tables, "checksum": fingerprint(tables)}


async def differences(pool: Pool, one: str, other: str) -> list[str]:
    """Tables in which two generations differ, at one moment. What differs in its revision, as a document does that one of them has only just seen, is left out,
    and then so are counts over all documents. Raises DatabaseUnavailable."""
    with database_errors():
        async with pool.acquire() as connection, connection.transaction(isolation="repeatable_read", readonly=True):
            apart = await connection.fetchval(statement("shown_apart"), one, other)
            sums = [
                {row["name"]: (row["rows"], row["total"]) for row in await connection.fetch(statement("checksum_visible"), *pair)}
                for pair in ((one, other), (other, one))
            ]
    return [table for table in VISIBLE if not (apart and table in OF_ALL_DOCUMENTS) and sums[0].get(table) != sums[1].get(table)]
