"""Folding the signed deltas of the lexical statistics. Readers sum in any case: it only makes the sums short."""

from __future__ import annotations

from sql.errors import translate_database_errors
from sql.pool import Pool
from sql.query_loader import load_query

MAX_WORDS = 20_000
"""Folded in one transaction, so that it stays short: the log's readers wait for it."""


async def compact_lexical(pool: Pool, generation: str, *, max_words: int = MAX_WORDS) -> int:
    """Fold in one short transaction and return how many rows were taken; call again until it is 0 to fold all.

    One at a time: 0 while another call for the same generation is at it. Raises DatabaseUnavailable.
    """
    with translate_database_errors():
        async with pool.acquire(timeout=60) as connection, connection.transaction():
            if not await connection.fetchval("select pg_try_advisory_xact_lock(hashtext('compact_lexical ' || $1))", generation):
                return 0
            n_folded: int = await connection.fetchval(load_query("compact_words"), generation, max_words)
            return n_folded + int(await connection.fetchval(load_query("compact_corpus"), generation))
