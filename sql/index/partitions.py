"""Create and drop a generation's partitions of the derived tables, and build their indexes.

The first generation, live at once, gets its secondary indexes on empty tables. Later ones are
loaded first and indexed afterwards, which is cheaper per row.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import asyncpg

from schemas.errors import DatabaseUnavailable, PermanentError
from schemas.generations import Generation, LexicalConfig
from sql.catalog.runs import archive_run_texts
from sql.database import (
    Connection,
    Pool,
    acquire,
    execute,
    fetch_row,
    fetch_rows,
    fetch_value,
    load_query,
    try_lock,
)
from sql.index.derived_tables import PARTITIONED_TABLES
from sql.index.generations import unknown_generation_error

ROW_SECURITY_TABLES = frozenset(
    (
        "revision_texts",
        "parent_chunks",
        "child_chunks",
        "chunk_vectors",
        "entity_mentions",
        "relations",
        "claims",
        "visible",
    )
)
"""Tables with row-level security. A partition that is read by its own name needs policies of its
own.
"""
# Queries queue behind a waiting ACCESS EXCLUSIVE lock, so DDL must give up soon.
LOCK_TIMEOUT = "2s"
DROP_ATTEMPTS = 30
DROP_RETRY_S = 0.5
BUILD_MEMORY = "512MB"


async def create_partitions(
    connection: Connection, generation: Generation, *, indexed: bool
) -> None:
    """Create the partitions of a generation.

    Without `indexed` they have primary keys only. Raises LockNotAvailableError if another
    transaction has a parent table locked beyond the lock timeout; nothing is left behind then.
    """
    await connection.execute(f"set local lock_timeout = '{LOCK_TIMEOUT}'")
    for table in PARTITIONED_TABLES:
        partition = f"{table}_{generation.name}"
        # Created standalone, then attached: CREATE TABLE … PARTITION OF takes an ACCESS EXCLUSIVE
        # lock on the parent, waits for one reader, and blocks every query that arrives behind it.
        await connection.execute(
            f"create table {partition} (like {table} including all);"
            # With a matching check constraint ATTACH does not scan the table.
            f"alter table {partition} add constraint {partition}_own check (generation = "
            f"'{generation.name}')"
        )
        if table == "chunk_vectors":
            # One column serves generations with different dimensions, so each partition checks its
            # own.
            dimension = generation.config.embed.dimension
            await connection.execute(
                f"alter table {partition} add constraint {partition}_dimension check "
                f"(vector_dims(embedding) = {dimension})"
            )
        if table == "child_chunks":
            await _set_lexical_weights(connection, partition, generation.config.lexical)
            # Autovacuum would analyze no table below 50 rows, and without statistics the planner
            # computes the names of every document for each name that is looked up.
            await connection.execute(
                f"alter table {partition} set (autovacuum_analyze_threshold = 0)"
            )
        if table in ROW_SECURITY_TABLES:
            await connection.execute(load_query("secure_partition"), partition)
        await connection.execute(
            # Locks the parent only in SHARE UPDATE EXCLUSIVE mode: queries and writes continue.
            f"alter table {table} attach partition {partition} for values in ('{generation.name}')"
        )
    if indexed:
        await create_indexes(connection, generation.name)


async def _set_lexical_weights(
    connection: Connection, partition: str, config: LexicalConfig
) -> None:
    """Weigh terms by the generation's constants.

    Postgres before 16 attaches a partition only with the parent's expression, hence the defaults.
    """
    # Postgres before 17 has no SET EXPRESSION. The partition is empty, so a new column costs
    # nothing.
    await connection.execute(
        f"alter table {partition} drop column bm;"
        f"alter table {partition} add column bm extensions.sparsevec generated always as"
        f" (lexical_weights(to_tsvector(cfg, prefix || ' ' || text), {config.k1}, {config.b}, "
        f"{config.avgdl})) stored;"
        f"alter table {partition} alter column bm set storage main"
    )


async def drop_partitions(pool: Pool, generation: str) -> None:
    """Detach and drop the partitions of a generation.

    Texts that recorded answers were made from move into the history. Queries of other generations
    continue; detaching waits for transactions that have read the parent table. A later call
    finishes an interrupted one. Raises DatabaseUnavailable.
    """
    async with acquire(pool, timeout_s=60) as connection:
        # Before the rows go: recorded answers refer to their texts by hash.
        await archive_run_texts(connection, generation)
        for table in PARTITIONED_TABLES:
            await _drop_partition(connection, table, f"{table}_{generation}")


async def _drop_partition(connection: Connection, table: str, partition: str) -> None:
    state = await connection.fetchrow(load_query("partition_state"), partition)
    if state is None:
        return
    # Not in a transaction: DETACH CONCURRENTLY must commit between its two steps.
    if state["attached"]:
        await connection.execute(
            f"alter table {table} detach partition {partition} "
            f"{'finalize' if state['detaching'] else 'concurrently'}"
        )
    for attempt in range(DROP_ATTEMPTS):
        try:
            async with connection.transaction():
                await connection.execute(
                    f"set local lock_timeout = '{LOCK_TIMEOUT}'; drop table if exists {partition}"
                )
            break
        except asyncpg.LockNotAvailableError:
            if attempt == DROP_ATTEMPTS - 1:
                raise
            await asyncio.sleep(DROP_RETRY_S)


@dataclass(frozen=True, slots=True)
class SecondaryIndex:
    table: str
    suffix: str
    columns: str

    def format_name(self, generation: str) -> str:
        return f"{self.table}_{generation}_{self.suffix}"

    def format_ddl(self, generation: str, *, concurrently: bool) -> str:
        return (
            f"create index {'concurrently ' if concurrently else ''}{self.format_name(generation)} "
            f"on {self.table}_{generation} {self.columns}"
        )


SECONDARY_INDEXES = (
    # A short pending list, which every query scans: it saves a third of the WAL of small documents.
    SecondaryIndex("child_chunks", "by_word", "using gin (tsv) with (gin_pending_list_limit = 64)"),
    SecondaryIndex("child_chunks", "by_id", "(id)"),
    SecondaryIndex("child_chunks", "by_parent", "(parent_id)"),
    SecondaryIndex(
        "child_chunks", "by_name", "using gin (document_names(prefix, text)) where ordinal = 0"
    ),
    SecondaryIndex("parent_chunks", "by_id", "(id)"),
    SecondaryIndex("lexical_deltas", "by_word", "(tenant, cfg, lexeme) include (delta)"),
    SecondaryIndex("corpus_deltas", "by_tenant", "(tenant, cfg) include (chunks)"),
    # Lets the planner scan a small tenant's vectors exactly instead of searching the HNSW graph of
    # all tenants.
    SecondaryIndex("chunk_vectors", "by_tenant", "(tenant)"),
    SecondaryIndex("visible", "by_tenant", "(tenant)"),
    SecondaryIndex("entity_mentions", "by_key", "(tenant, key, type)"),
    SecondaryIndex(
        "entity_mentions", "by_entity", "(entity_id) include (chunk_id, document_id, ord)"
    ),
    SecondaryIndex("entity_mentions", "by_chunk", "(chunk_id)"),
    SecondaryIndex("claims", "by_subject", "(subject_id)"),
    SecondaryIndex(
        "claims",
        "by_alias",
        "(tenant, name_key(value), document_id) where property in ('abbreviation', 'defined_term')",
    ),
    SecondaryIndex(
        "relations", "by_subject", "(subject_id, weight desc) include (object_id, document_id, ord)"
    ),
    SecondaryIndex(
        "relations", "by_object", "(object_id, weight desc) include (subject_id, document_id, ord)"
    ),
)


async def create_indexes(connection: Connection, generation: str) -> None:
    """Create all indexes on empty partitions, inside the caller's transaction."""
    for index in SECONDARY_INDEXES:
        await connection.execute(index.format_ddl(generation, concurrently=False))


async def build_indexes(pool: Pool, generation: str) -> AsyncIterator[str]:
    """Build missing indexes on filled partitions one by one; yields the name of each one built.

    An interrupted build is repeated. Blocks neither readers nor writers. Allows one caller per
    generation. Raises DatabaseUnavailable.
    """
    async with acquire(pool, timeout_s=60) as connection:
        await connection.execute(f"set maintenance_work_mem = '{BUILD_MEMORY}'")
        try:
            for index in SECONDARY_INDEXES:
                if await _ensure_index(connection, index, generation):
                    yield index.format_name(generation)
        finally:
            # The pool does not reset its connections.
            await connection.execute("reset maintenance_work_mem")
        # Autovacuum has not analyzed a freshly loaded partition, and the first queries would
        # get bad plans.
        for table in dict.fromkeys(index.table for index in SECONDARY_INDEXES):
            await connection.execute(f"analyze {table}_{generation}")


async def _ensure_index(connection: Connection, index: SecondaryIndex, generation: str) -> bool:
    valid = await connection.fetchval(load_query("index_state"), index.format_name(generation))
    if valid:
        return False
    # An interrupted CREATE INDEX CONCURRENTLY leaves an invalid index, which must be dropped.
    if valid is not None:
        await connection.execute(
            f"drop index concurrently if exists {index.format_name(generation)}"
        )
    await connection.execute(index.format_ddl(generation, concurrently=True))
    return True


# Drop a generation and remove its tables, while other generations are read and written.
#
# Three steps: mark it as dropped, truncate its partitions, then detach and drop them. The last step
# waits for every transaction that has read one of the parent tables; the data are gone before that.

# Queries queue behind a waiting TRUNCATE, so it gives up soon and leaves the table to the drop.
TRUNCATE_LOCK_TIMEOUT = "500ms"
QUERY_DRAIN_S = 10.0
"""How long to wait for queries that started before the drop."""
REMOVAL_TIMEOUT_S = 3.0
POLL_S = 0.05

PublishDrop = Callable[[str], Awaitable[int]]


@dataclass(frozen=True, slots=True)
class Removal:
    """The outcome of a removal.

    `removed` is True once no table of the generation exists. Otherwise `blocked_by` may name the
    transaction that keeps one open; its rows may be deleted already.
    """

    removed: bool
    blocked_by: dict[str, Any] | None = None


async def begin_generation_drop(pool: Pool, name: str, publish: PublishDrop) -> None:
    """Publish the drop of a generation, then mark it as dropped, so that queries and workers stop
    using it.

    Raises NotFound, PermanentError with code GENERATION_IS_LIVE, LogUnavailable or
    DatabaseUnavailable; nothing has changed then.
    """
    async with acquire(pool, timeout_s=60) as connection, connection.transaction():
        # Blocks a concurrent switch to this generation.
        await connection.execute(load_query("lock_live_generation"))
        row = await connection.fetchrow(load_query("begin_drop"), name)
        if row is None or row["state"] == "dropped":
            raise unknown_generation_error(name)
        if row["live"]:
            raise PermanentError(
                f"Generation {name!r} is live.",
                code="GENERATION_IS_LIVE",
                remedy="Promote another generation first, or roll back.",
            )
        # Published first: the log decides, and after a crash stage `control` marks the drop.
        await publish(name)
        await connection.execute(load_query("mark_generation_dropped"), name)


async def remove_generation_tables(
    pool: Pool, name: str, *, timeout_s: float = REMOVAL_TIMEOUT_S
) -> Removal:
    """Remove the tables of a dropped generation.

    Rows are deleted within seconds, even while a transaction that has read other generations stays
    open; tables are detached and dropped once it ends. A later call finishes what is left after
    `timeout_s`. Raises DatabaseUnavailable.
    """
    async with (
        acquire(pool, timeout_s=60) as connection,
        try_lock(connection, f"drop {name}") as acquired,
    ):
        if acquired and await _has_tables(pool, name):
            await _remove_tables(pool, connection, name, timeout_s)
    if not await _has_tables(pool, name):
        return Removal(removed=True)
    blocker = await fetch_row(
        pool, "partition_blocker", _format_partition_names(name), list(PARTITIONED_TABLES)
    )
    return Removal(removed=False, blocked_by=dict(blocker) if blocker else None)


async def _remove_tables(pool: Pool, connection: Connection, name: str, timeout_s: float) -> None:
    # Queries that begin from now on see the generation as dropped.
    removed_at = await connection.fetchval("select clock_timestamp()")
    # TRUNCATE is not MVCC-safe: an older snapshot sees the table empty, too.
    with suppress(TimeoutError):
        async with asyncio.timeout(QUERY_DRAIN_S):
            while await connection.fetchval(load_query("running_transactions"), removed_at):
                await asyncio.sleep(POLL_S)
    # Before the rows go: recorded answers refer to their texts by hash.
    await archive_run_texts(connection, name)
    for table in PARTITIONED_TABLES:
        # A partition that is gone or in use is only dropped, later.
        with suppress(asyncpg.LockNotAvailableError, asyncpg.UndefinedTableError):
            async with connection.transaction():
                await connection.execute(
                    f"set local lock_timeout = '{TRUNCATE_LOCK_TIMEOUT}'; "
                    f"truncate anabranch.{table}_{name}"
                )
    # ObjectNotInPrerequisiteStateError: another partition of the same table is being detached.
    with suppress(TimeoutError, DatabaseUnavailable, asyncpg.ObjectNotInPrerequisiteStateError):
        async with asyncio.timeout(timeout_s):
            await drop_partitions(pool, name)


async def list_unremoved_generations(pool: Pool) -> list[str]:
    """Return dropped generations that still have tables. Raises DatabaseUnavailable."""
    names = await fetch_rows(pool, "dropped_names")
    return [row["name"] for row in names if await _has_tables(pool, row["name"])]


async def _has_tables(pool: Pool, name: str) -> bool:
    return bool(await fetch_value(pool, "has_partitions", _format_partition_names(name)))


def _format_partition_names(name: str) -> list[str]:
    return [f"{table}_{name}" for table in PARTITIONED_TABLES]


async def record_dropped_states(pool: Pool, generation: str) -> None:
    """Record the blobs of a generation. Call it before its rows, the only reference to them, are
    deleted.
    """
    await execute(pool, "record_dropped_states", generation)


async def fetch_dropped_states(pool: Pool, limit: int) -> dict[str, bool]:
    """Return blob key → whether another generation still references the blob."""
    return {
        row["blob_key"]: row["used"] for row in await fetch_rows(pool, "dropped_state_blobs", limit)
    }


async def delete_dropped_states(pool: Pool, keys: Sequence[str]) -> None:
    await execute(pool, "delete_dropped_states", list(keys))
