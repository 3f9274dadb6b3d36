"""The ledger: two transactions around each reaction of a stage.

The first one claims events and writes their rows; this package reads in its order:

1. `PgLedger.claim` splits a batch into short transactions, and restarts one that collides.
2. `claim_transaction` takes the visibility lock, then locks and loads the documents
   (`document_state`).
3. It decides which events take effect: by their claims (`entries`) and the `revision_policy`.
4. It inserts the claims and rows: `shared_rows`, `document_state` and `amendments`, or those of a
   generation (`sql.index.derived_tables`).
5. `visibility` activates the revisions that are complete now, and removes withdrawn ones.

The second one, `PgLedger.complete`, marks the events once their reactions are published.
Results of engines are cached by input hash, so that a repeated reaction calls none again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import asyncpg
import structlog

from schemas.batching import CallBatcher, split_by_cost
from schemas.errors import PermanentError, TransientError
from schemas.events import EventDeadLettered
from schemas.generations import Generation
from schemas.ports.ledger import (
    AppendRecords,
    ChainedDocument,
    ChainedEvent,
    ClaimResult,
    MemoKey,
    OrderingPolicy,
    ProjectedEvent,
    RevisionPreview,
)
from schemas.rows import ChildRow, Row, VectorRow
from schemas.topics import Record
from sql.database import (
    PgStore,
    Pool,
    acquire,
    encode_json_text,
    execute,
    fetch_rows,
    load_query,
    read_columns,
)
from sql.errors import translate_database_errors
from sql.inbox import chain_transaction
from sql.inbox.claim_transaction import (
    SHARED_GENERATION,
    InboxEntries,
    RowWriter,
    claim_documents,
    claim_shared,
)
from sql.inbox.document_state import MissingDocuments, add_stubs
from sql.inbox.entries import ClaimCollision, fetch_inbox_entries
from sql.index.derived_tables import copy_rows, insert_rows

MAX_TRANSACTION_COST = 200.0
"""Approximate cost of one transaction, in chunks: about half a second of work."""
COST_BY_ROW_TYPE: Mapping[type[Row], float] = {ChildRow: 1.0, VectorRow: 0.25}
DEFAULT_ROW_COST = 0.1
log = structlog.get_logger(__name__)


class PgLedger:
    """Implements `schemas.ports.ledger.Ledger` and `ChainLedger`.

    `generation` may be None for stages whose ordering policy is `once_per_id` or `always`.
    """

    def __init__(self, pool: Pool, generation: Generation | None) -> None:
        self._pool = pool
        self._generation = generation

    @property
    def generation(self) -> Generation:
        assert self._generation is not None, "this ledger serves shared stages only"
        return self._generation

    async def claim(
        self, stage: str, ordering: OrderingPolicy, events: Sequence[ProjectedEvent]
    ) -> list[ClaimResult]:
        """Claim events in short transactions: readers of the log wait for the oldest open one."""
        with translate_database_errors():
            return [
                result
                for part in split_by_cost(
                    events, lambda event: _estimate_cost([event]), MAX_TRANSACTION_COST
                )
                for result in await self._claim_slice(stage, ordering, part)
            ]

    async def record_attempt(self, stage: str, event_ids: Sequence[UUID]) -> None:
        await execute(self._pool, "begin_attempts", self._generations, stage, list(event_ids))

    async def withdraw_attempt(self, stage: str, event_ids: Sequence[UUID]) -> None:
        await execute(self._pool, "end_attempts", self._generations, stage, list(event_ids))

    async def complete(
        self, stage: str, completed: Sequence[UUID], dead_letters: Sequence[EventDeadLettered]
    ) -> None:
        if not completed and not dead_letters:
            return
        errors = [
            encode_json_text({"code": event.code, "detail": event.detail, "remedy": event.remedy})
            for event in dead_letters
        ]
        ids = [*completed, *(event.event_id for event in dead_letters)]
        attempts = [1] * len(completed) + [event.attempts for event in dead_letters]
        await execute(
            self._pool,
            "complete_events",
            self._generations,
            stage,
            ids,
            attempts,
            [None] * len(completed) + errors,
        )

    async def preview_revisions(self, events: Sequence[ProjectedEvent]) -> list[RevisionPreview]:
        async with acquire(self._pool) as connection:
            return await chain_transaction.preview_revisions(connection, self.generation, events)

    async def commit_chains(
        self, documents: Sequence[ChainedDocument], append: AppendRecords | None = None
    ) -> dict[UUID, Sequence[Record]]:
        committed: dict[UUID, Sequence[Record]] = {}
        for part in split_by_cost(
            documents, lambda document: _estimate_cost(document.events), MAX_TRANSACTION_COST
        ):
            try:
                with translate_database_errors():
                    async with self._pool.acquire() as connection, connection.transaction():
                        part_committed = await chain_transaction.commit_chains(
                            connection, self.generation, part, append
                        )
                    committed |= part_committed
            # The ordinary path finds the document that the tables or the log reject.
            except (
                chain_transaction.ChainContradicted,
                MissingDocuments,
                PermanentError,
                asyncpg.PostgresError,
            ) as error:
                log.warning("chains_rejected", documents=len(part), error=repr(error))
        return committed

    async def fetch_ended_chains(self, received_ids: Sequence[UUID]) -> Mapping[UUID, bool]:
        rows = await fetch_rows(
            self._pool,
            "ended_chains",
            chain_transaction.INGRESS,
            self.generation.name,
            list(received_ids),
        )
        return {row["event_id"]: row["is_applied"] for row in rows}

    async def prune(self, stage: str, topic: str, partition: int, before_offset: int) -> None:
        await execute(
            self._pool, "prune_inbox", self._generations, stage, topic, partition, before_offset
        )

    @property
    def _generations(self) -> list[str]:
        """Generations that this ledger's claims may belong to."""
        return (
            [SHARED_GENERATION, self._generation.name] if self._generation else [SHARED_GENERATION]
        )

    async def _claim_slice(
        self, stage: str, ordering: OrderingPolicy, events: Sequence[ProjectedEvent]
    ) -> list[ClaimResult]:
        """Claim optimistically, as if every event and row were new.

        On a collision, load the missing state and restart the transaction.
        """
        # Empty at first: nearly all events are new, and this saves a query for each transaction.
        known_entries: InboxEntries = {}
        write_rows: RowWriter = copy_rows
        while True:
            try:
                return await self._claim(stage, ordering, events, known_entries, write_rows)
            # After the rollback: late locks, out of id order, could deadlock.
            except MissingDocuments:
                async with self._pool.acquire() as connection:
                    await add_stubs(connection, events)
            except ClaimCollision:
                generation = (
                    SHARED_GENERATION
                    if ordering in (OrderingPolicy.ONCE_PER_ID, OrderingPolicy.ALWAYS)
                    else self.generation.name
                )
                known_entries = await fetch_inbox_entries(
                    self._pool, generation, stage, [event.event.id for event in events]
                )
            except (asyncpg.CheckViolationError, asyncpg.UndefinedTableError) as error:
                # The partition is gone: this worker has not read the drop of its generation yet.
                if self._generation is None or await self._pool.fetchval(
                    load_query("generation_exists"), self._generation.name
                ):
                    raise
                raise TransientError(
                    f"Generation {self.generation.name!r} was dropped.", code="GENERATION_DROPPED"
                ) from error
            # COPY has no ON CONFLICT; a part redelivered after its claim was pruned has rows.
            except asyncpg.UniqueViolationError:
                # Not a repeated row, or `on conflict do nothing` would have skipped it.
                if write_rows is insert_rows:
                    raise
                write_rows = insert_rows

    async def _claim(
        self,
        stage: str,
        ordering: OrderingPolicy,
        events: Sequence[ProjectedEvent],
        known_entries: InboxEntries,
        write_rows: RowWriter,
    ) -> list[ClaimResult]:
        # READ COMMITTED: a statement after a lock wait sees what the other transaction wrote.
        async with self._pool.acquire() as connection, connection.transaction():
            if ordering in (OrderingPolicy.ONCE_PER_ID, OrderingPolicy.ALWAYS):
                return await claim_shared(connection, stage, ordering, events, known_entries)
            return await claim_documents(
                connection, self.generation, stage, ordering, events, known_entries, write_rows
            )


def _estimate_cost(events: Sequence[ProjectedEvent | ChainedEvent]) -> float:
    return sum(
        COST_BY_ROW_TYPE.get(type(row), DEFAULT_ROW_COST) for event in events for row in event.rows
    )


class PgEngineResultCache(PgStore):
    """Implements `schemas.ports.ledger.Memo` over the table `engine_results`."""

    def __init__(self, pool: Pool) -> None:
        super().__init__(pool)
        # The reactions of a stage run concurrently, each on a document of its own.
        self._fetches = CallBatcher(self._fetch_together)
        self._stores = CallBatcher(self._store_together)

    async def fetch(self, keys: Sequence[MemoKey]) -> Mapping[MemoKey, bytes]:
        return await self._fetches.run(keys) if keys else {}

    async def _fetch_together(
        self, calls: Sequence[Sequence[MemoKey]]
    ) -> list[Mapping[MemoKey, bytes]]:
        keys = list(dict.fromkeys(key for call in calls for key in call))
        rows = await self._fetch("engine_results", *_to_columns(keys))
        # WITH ORDINALITY counts from 1.
        results = {keys[row["n"] - 1]: row["result"] for row in rows}
        return [{key: results[key] for key in call if key in results} for call in calls]

    async def count_cached(self, keys: Sequence[MemoKey]) -> int:
        """Return how many of these distinct keys have a result."""
        return int(await self._fetch_value("count_engine_results", *_to_columns(keys)))

    async def store(self, results: Mapping[MemoKey, bytes]) -> None:
        if results:
            await self._stores.run(results)

    async def _store_together(self, calls: Sequence[Mapping[MemoKey, bytes]]) -> list[None]:
        # The first result of an input stays, as in separate calls.
        results = {key: value for call in reversed(calls) for key, value in call.items()}
        await self._execute(
            "insert_engine_results", *_to_columns(list(results)), list(results.values())
        )
        return [None] * len(calls)


def _to_columns(keys: Sequence[MemoKey]) -> list[list[Any]]:
    return read_columns(keys, "tenant", "document_id", "engine", "input_sha256")
