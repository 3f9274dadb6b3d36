"""Folding the signed deltas of the lexical statistics. Readers sum in any case: it only makes the sums short."""

from __future__ import annotations

from sql.errors import database_errors
from sql.pool import Pool
from sql.statements import statement

WORDS = 20_000
"""Folded in one transaction, so that it stays short: the log's readers wait for it."""


async def compact_lexical(pool: Pool, generation: str, *, words: int = WORDS) -> int:
    """Fold in one short transaction and return how many rows were taken; call again until it is 0 to fold all.

    One at a time: 0 while another call for the same generation is at it. Raises DatabaseUnavailable.
    """
    with database_errors():
        async with pool.acquire(timeout=60) as connection, connection.transaction():
            if not await connection.fetchval("select pg_try_advisory_xact_lock(hashtext('compact_lexical ' || $1))", generation):
                return 0
            taken: int = await connection.fetchval(statement("compact_words"), generation, words)
            return taken + int(await connection.fetchval(statement("compact_corpus"), generation))
