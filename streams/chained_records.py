"""Records that a chain has applied: their consumers only acknowledge them.

On a log outside of the tables' database, the events of a chain are in the log before its rows are
committed. Each names the chain in a header, so that its consumers wait for the commit instead of
processing the event a second time.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from uuid import UUID

from cachetools import LRUCache

from schemas.ports.ledger import ChainLedger
from schemas.topics import Position, Record, StoredRecord
from streams.cloudevents import parse_uuid_or_none

CHAIN_HEADER = "anabranch_chain"
"""Generation and id of the received event. Not signed: whether a chain was committed is read in the
tables.
"""
WAIT_S = 3.0
"""How long a consumer waits for a chain. A worker that died with it commits nothing."""
POLL_S = 0.05
MAX_REMEMBERED = 20_000


@dataclass(eq=False)
class ChainedRecords:
    """Chains of one generation: those of this process, and in `ledger` those of all workers."""

    ledger: ChainLedger
    _running: dict[UUID, asyncio.Future[None]] = field(default_factory=dict, init=False)
    _is_applied: LRUCache[UUID, bool] = field(
        default_factory=lambda: LRUCache(MAX_REMEMBERED), init=False
    )

    def mark(self, received_id: UUID, record: Record) -> Record:
        """Return the record with the header that names its chain."""
        chain = f"{self.ledger.generation.name}/{received_id}".encode()
        return replace(record, headers={**record.headers, CHAIN_HEADER: chain})

    @contextmanager
    def run(self, received_ids: Sequence[UUID]) -> Iterator[dict[UUID, bool]]:
        """Let consumers of this process wait for these chains until the block ends.

        The block sets which of them it has committed.
        """
        ended = asyncio.get_running_loop().create_future()
        self._running |= dict.fromkeys(received_ids, ended)
        results: dict[UUID, bool] = dict.fromkeys(received_ids, False)
        try:
            yield results
        finally:
            self._is_applied.update(results)
            for received_id in received_ids:
                self._running.pop(received_id, None)
            ended.set_result(None)

    async def find_applied(self, records: Sequence[StoredRecord]) -> set[Position]:
        """Return the positions of records that a chain has applied.

        Waits for chains that are being committed. Raises DatabaseUnavailable.
        """
        positions: defaultdict[UUID, list[Position]] = defaultdict(list)
        for stored in records:
            if (received_id := self._parse_chain(stored)) is not None:
                positions[received_id].append(stored.position)
        now = asyncio.get_running_loop().time
        deadline = now() + WAIT_S
        while unknown := [chain for chain in positions if chain not in self._is_applied]:
            running = {self._running[chain] for chain in unknown if chain in self._running}
            if running:
                await asyncio.wait(running, timeout=max(0.0, deadline - now()))
            else:
                self._is_applied.update(await self.ledger.fetch_ended_chains(unknown))
                if any(chain not in self._is_applied for chain in unknown):
                    await asyncio.sleep(POLL_S)
            if now() >= deadline:
                break
        return {
            position
            for chain, chain_positions in positions.items()
            if self._is_applied.get(chain)
            for position in chain_positions
        }

    def _parse_chain(self, stored: StoredRecord) -> UUID | None:
        header = stored.record.headers.get(CHAIN_HEADER, b"").decode(errors="replace")
        generation, _, received_id = header.rpartition("/")
        return (
            parse_uuid_or_none(received_id) if generation == self.ledger.generation.name else None
        )
