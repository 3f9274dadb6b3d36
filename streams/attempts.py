"""Open attempts: they show which event kills the workers that process it.

The ledger stores attempts, and a worker withdraws those that it ends. Killed workers leave theirs,
which count as abandoned.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from uuid import UUID

from schemas.errors import TransientError
from schemas.ports.ledger import Ledger

# Bounds how long closing a partition, and so a rebalance, waits for a lost database.
WITHDRAWAL_TIMEOUT_S = 5.0


class OpenAttempts:
    """Attempts of a stage that this process recorded and has not ended.

    The claim of a duplicate must not count them as abandoned.
    """

    def __init__(self, stage_name: str, ledger: Ledger) -> None:
        self._stage_name, self._ledger = stage_name, ledger
        self._counts: Counter[UUID] = Counter()

    def count(self, event_id: UUID) -> int:
        return self._counts[event_id]

    def add(self, event_ids: Iterable[UUID]) -> None:
        self._counts.update(event_ids)

    def forget(self, event_ids: Iterable[UUID]) -> None:
        """Remove one attempt at each event, which the ledger has ended."""
        for event_id in event_ids:
            self._counts[event_id] -= 1
            if self._counts[event_id] <= 0:
                del self._counts[event_id]

    async def withdraw(self, event_ids: Sequence[UUID]) -> None:
        """End one attempt at each event, finished or cancelled."""
        self.forget(event_ids)
        if event_ids:
            # Closing a partition must not wait for a lost database; the attempt then counts as
            # abandoned.
            with suppress(TransientError, TimeoutError):
                async with asyncio.timeout(WITHDRAWAL_TIMEOUT_S):
                    await self._ledger.withdraw_attempt(self._stage_name, event_ids)
