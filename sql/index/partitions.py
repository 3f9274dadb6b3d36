"""Create and drop a generation's partitions of the derived tables, and build their indexes.

The first generation, live at once, gets its secondary indexes on empty tables. Later ones are
loaded first and indexed afterwards, which is cheaper per row.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import asyncpg

from schemas.generations import Generation, LexicalConfig
from sql.catalog.runs import archive_run_texts
from sql.errors import translate_database_errors
from sql.index.derived_tables import PARTITIONED_TABLES
from sql.pool import Connection, Pool
from sql.query_loader import load_query

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


async def drop_partitions(pool: Pool, generation: str) -> int:
    """Detach and drop the partitions of a generation; return how many there were.

    Texts that recorded answers were made from move into the history. Queries of other generations
    continue; detaching waits for transactions that have read the parent table. A later call
    finishes an interrupted one. Raises DatabaseUnavailable.
    """
    n_dropped = 0
    with translate_database_errors():
        async with pool.acquire(timeout=60) as connection:
            # Before the rows go: recorded answers refer to their texts by hash.
            await archive_run_texts(connection, generation)
            for table in PARTITIONED_TABLES:
                n_dropped += await _drop_partition(connection, table, f"{table}_{generation}")
    return n_dropped


async def _drop_partition(connection: Connection, table: str, partition: str) -> bool:
    state = await connection.fetchrow(load_query("partition_state"), partition)
    if state is None:
        return False
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
    return True


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
    with translate_database_errors():
        async with pool.acquire(timeout=60) as connection:
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
