"""Cache the results of engines by input hash."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from schemas.batching import CallBatcher
from schemas.ports.ledger import MemoKey
from sql.pool import Pool, execute, fetch_rows, fetch_value


class PgEngineResultCache:
    """Implements `schemas.ports.ledger.Memo` over the table `engine_results`."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        # The reactions of a stage run concurrently, each on a document of its own.
        self._fetches = CallBatcher(self._fetch_together)
        self._stores = CallBatcher(self._store_together)

    async def fetch(self, keys: Sequence[MemoKey]) -> Mapping[MemoKey, bytes]:
        return await self._fetches.run(keys) if keys else {}

    async def _fetch_together(
        self, calls: Sequence[Sequence[MemoKey]]
    ) -> list[Mapping[MemoKey, bytes]]:
        keys = list(dict.fromkeys(key for call in calls for key in call))
        rows = await fetch_rows(self._pool, "engine_results", *_to_columns(keys))
        # WITH ORDINALITY counts from 1.
        results = {keys[row["n"] - 1]: row["result"] for row in rows}
        return [{key: results[key] for key in call if key in results} for call in calls]

    async def count_cached(self, keys: Sequence[MemoKey]) -> int:
        """Return how many of these distinct keys have a result."""
        return int(await fetch_value(self._pool, "count_engine_results", *_to_columns(keys)))

    async def store(self, results: Mapping[MemoKey, bytes]) -> None:
        if results:
            await self._stores.run(results)

    async def _store_together(self, calls: Sequence[Mapping[MemoKey, bytes]]) -> list[None]:
        # The first result of an input stays, as in separate calls.
        results = {key: value for call in reversed(calls) for key, value in call.items()}
        await execute(
            self._pool,
            "insert_engine_results",
            *_to_columns(list(results)),
            list(results.values()),
        )
        return [None] * len(calls)


def _to_columns(keys: Sequence[MemoKey]) -> tuple[list[object], ...]:
    return (
        [key.tenant for key in keys],
        [key.document_id for key in keys],
        [key.engine for key in keys],
        [key.input_sha256 for key in keys],
    )
