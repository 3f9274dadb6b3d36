"""Cache the results of engines by input hash."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from schemas.ports.ledger import MemoKey
from sql.pool import Pool, execute, fetch_rows, fetch_value


class PgEngineResultCache:
    """Implements `schemas.ports.ledger.Memo` over the table `engine_results`."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def fetch(self, keys: Sequence[MemoKey]) -> Mapping[MemoKey, bytes]:
        if not keys:
            return {}
        rows = await fetch_rows(self._pool, "engine_results", *_to_columns(keys))
        # WITH ORDINALITY counts from 1.
        return {keys[row["n"] - 1]: row["result"] for row in rows}

    async def count_cached(self, keys: Sequence[MemoKey]) -> int:
        """Return how many of these distinct keys have a result."""
        return int(await fetch_value(self._pool, "count_engine_results", *_to_columns(keys)))

    async def store(self, results: Mapping[MemoKey, bytes]) -> None:
        if results:
            await execute(
                self._pool,
                "insert_engine_results",
                *_to_columns(list(results)),
                list(results.values()),
            )


def _to_columns(keys: Sequence[MemoKey]) -> tuple[list[object], ...]:
    return (
        [key.tenant for key in keys],
        [key.document_id for key in keys],
        [key.engine for key in keys],
        [key.input_sha256 for key in keys],
    )
