"""Compact the signed deltas of the lexical statistics.

Readers sum the deltas in any case; compaction only keeps the sums short.
"""

from __future__ import annotations

from sql.errors import translate_database_errors
from sql.pool import Pool
from sql.query_loader import load_query

MAX_WORDS = 20_000
"""Words per transaction. It must stay short: readers of the log wait for open writing transactions."""


async def compact_lexical(pool: Pool, generation: str, *, max_words: int = MAX_WORDS) -> int:
    """Compact deltas in one short transaction and return how many rows were replaced.

    Call it again until it returns 0. Also returns 0 while another call compacts the same
    generation. Raises DatabaseUnavailable.
    """
    with translate_database_errors():
        async with pool.acquire(timeout=60) as connection, connection.transaction():
            if not await connection.fetchval(
                "select pg_try_advisory_xact_lock(hashtext('compact_lexical ' || $1))", generation
            ):
                return 0
            n_folded: int = await connection.fetchval(
                load_query("compact_words"), generation, max_words
            )
            return n_folded + int(
                await connection.fetchval(load_query("compact_corpus"), generation)
            )
