"""The write side of the tables: two transactions around each reaction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from uuid import UUID

import asyncpg

from schemas.errors import TransientError
from schemas.events import EventBuried
from schemas.generations import Generation
from schemas.ports.ledger import Claimed, Counts, Projected
from schemas.rows import ChildRow, Row, VectorRow
from sql.claiming import SHARED, Before, WriteRows, claim_documents, claim_shared
from sql.claims import Collision, claimed_before
from sql.document_state import MissingDocuments, add_stubs
from sql.errors import database_errors
from sql.pool import Pool
from sql.statements import statement
from sql.storable import json_text
from sql.writers import copy_rows, insert_rows

COST = 200.0
"""Of one transaction, about, in chunks: half a second of work."""
COST_OF: Mapping[type[Row], float] = {ChildRow: 1.0, VectorRow: 0.25}
COST_OF_OTHERS = 0.1


class PgLedger:
    """Ledger over Postgres. `generation` may be None for stages that count by `door` or `always`."""

    def __init__(self, pool: Pool, generation: Generation | None) -> None:
        self._pool = pool
        self._generation = generation

    @property
    def generation(self) -> Generation:
        assert self._generation is not None, "this ledger serves shared stages only"
        return self._generation

    async def claim(self, stage: str, counts: Counts, events: Sequence[Projected]) -> list[Claimed]:
        """In short transactions one after the other: the log's readers wait for the oldest that is open."""
        with database_errors():
            return [claimed for part in _slices(events) for claimed in await self._claim_part(stage, counts, part)]

    async def begin(self, stage: str, events: Sequence[UUID]) -> None:
        with database_errors():
            await self._pool.execute(statement("begin_attempts"), self._generations, stage, list(events))

    async def release(self, stage: str, events: Sequence[UUID]) -> None:
        with database_errors():
            await self._pool.execute(statement("end_attempts"), self._generations, stage, list(events))

    async def settle(self, stage: str, reacted: Sequence[UUID], buried: Sequence[EventBuried]) -> None:
        if not reacted and not buried:
            return
        errors = [json_text({"code": event.code, "detail": event.detail, "remedy": event.remedy}) for event in buried]
        ids = [*reacted, *(event.event_id for event in buried)]
        attempts = [1] * len(reacted) + [event.attempts for event in buried]
        with database_errors():
            await self._pool.execute(statement("settle_events"), self._generations, stage, ids, attempts, [None] * len(reacted) + errors)

    async def prune(self, stage: str, topic: str, partition: int, below: int) -> None:
        with database_errors():
            await self._pool.execute(statement("prune_claims"), self._generations, stage, topic, partition, below)

    @property
    def _generations(self) -> list[str]:
        """Under which this ledger's claims may lie."""
        return [SHARED, self._generation.name] if self._generation else [SHARED]

    async def _claim_part(self, stage: str, counts: Counts, events: Sequence[Projected]) -> list[Claimed]:
        """As if every event were new and every row too; what turns out not to be is looked up, and the transaction begun again."""
        before: Before = {}
        write_rows: WriteRows = copy_rows
        while True:
            try:
                return await self._claim(stage, counts, events, before, write_rows)
            except MissingDocuments:
                async with self._pool.acquire() as connection:
                    await add_stubs(connection, events)
            except Collision:
                generation = SHARED if counts in ("door", "always") else self.generation.name
                before = await claimed_before(self._pool, generation, stage, [event.fact.id for event in events])
            except (asyncpg.CheckViolationError, asyncpg.UndefinedTableError) as error:
                if await self._is_there():
                    raise
                raise TransientError(f"generation {self.generation.name} was dropped", code="GENERATION_DROPPED") from error
            except asyncpg.UniqueViolationError:
                if write_rows is insert_rows:
                    raise
                write_rows = insert_rows

    async def _is_there(self) -> bool:
        """A worker may hear of a drop a moment late."""
        return self._generation is None or bool(
            await self._pool.fetchval("select exists (select from generations where name = $1 and state <> 'dropped')", self.generation.name)
        )

    async def _claim(self, stage: str, counts: Counts, events: Sequence[Projected], before: Before, write_rows: WriteRows) -> list[Claimed]:
        async with self._pool.acquire() as connection, connection.transaction():
            if counts in ("door", "always"):
                return await claim_shared(connection, stage, counts, events, before)
            return await claim_documents(connection, self.generation, stage, counts, events, before, write_rows)


def _slices(events: Sequence[Projected]) -> Iterator[list[Projected]]:
    """Events in order, cut where one transaction would become too long."""
    part: list[Projected] = []
    cost = 0.0
    for event in events:
        more = sum(COST_OF.get(type(row), COST_OF_OTHERS) for row in event.rows)
        if part and cost + more > COST:
            yield part
            part, cost = [], 0.0
        part.append(event)
        cost += more
    if part:
        yield part
