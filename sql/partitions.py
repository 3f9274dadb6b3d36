"""Create and drop a generation's partitions of the derived tables."""

from __future__ import annotations

import asyncio

import asyncpg

from schemas.generations import Generation, LexicalConfig
from sql.derived_tables import PARTITIONED_TABLES
from sql.errors import translate_database_errors
from sql.pool import Connection, Pool
from sql.query_loader import load_query
from sql.recorded_texts import archive_run_texts
from sql.secondary_indexes import create_indexes

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
LOCK_TIMEOUT = "2s"
DROP_ATTEMPTS = 30
DROP_RETRY_S = 0.5


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
        # lock on the
        # parent, waits for one reader, and blocks every query that arrives behind it.
        await connection.execute(
            f"create table {partition} (like {table} including all);"
            # With a matching check constraint ATTACH does not scan the table.
            f"alter table {partition} add constraint {partition}_own check (generation = '{generation.name}')"
        )
        if table == "chunk_vectors":
            # One column serves generations with different dimensions, so each partition checks its
            # own.
            dimension = generation.config.embed.dimension
            await connection.execute(
                f"alter table {partition} add constraint {partition}_dimension check (vector_dims(embedding) = {dimension})"
            )
        if table == "child_chunks":
            await _set_lexical_weights(connection, partition, generation.config.lexical)
        if table in ROW_SECURITY_TABLES:
            await connection.execute(load_query("secure_partition"), partition)
        await connection.execute(
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
    # Postgres before 17 has no SET EXPRESSION. The partition is empty, so a new column costs nothing.
    await connection.execute(
        f"alter table {partition} drop column bm;"
        f"alter table {partition} add column bm extensions.sparsevec generated always as"
        f" (lexical_weights(to_tsvector(cfg, prefix || ' ' || text), {config.k1}, {config.b}, {config.avgdl})) stored;"
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
            await archive_run_texts(connection, generation)
            for table in PARTITIONED_TABLES:
                n_dropped += await _drop_partition(connection, table, f"{table}_{generation}")
    return n_dropped


async def _drop_partition(connection: Connection, table: str, partition: str) -> bool:
    state = await connection.fetchrow(load_query("partition_state"), partition)
    if state is None:
        return False
    if state["attached"]:
        await connection.execute(
            f"alter table {table} detach partition {partition} {'finalize' if state['detaching'] else 'concurrently'}"
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
