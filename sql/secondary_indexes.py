"""Create the secondary indexes of a generation's partitions.

The first generation, live at once, gets them on empty tables. Later ones are loaded first and
indexed afterwards, which is cheaper per row.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from sql.errors import translate_database_errors
from sql.pool import Connection, Pool
from sql.query_loader import load_query

BUILD_MEMORY = "512MB"


@dataclass(frozen=True, slots=True)
class SecondaryIndex:
    table: str
    suffix: str
    columns: str

    def format_name(self, generation: str) -> str:
        return f"{self.table}_{generation}_{self.suffix}"

    def format_ddl(self, generation: str, *, concurrently: bool) -> str:
        return f"create index {'concurrently ' if concurrently else ''}{self.format_name(generation)} on {self.table}_{generation} {self.columns}"


SECONDARY_INDEXES = (
    # fastupdate = off: with a pending list every query has to scan the list.
    SecondaryIndex("child_chunks", "by_word", "using gin (tsv) with (fastupdate = off)"),
    SecondaryIndex("child_chunks", "by_id", "(id)"),
    SecondaryIndex("child_chunks", "by_parent", "(parent_id)"),
    SecondaryIndex("parent_chunks", "by_id", "(id)"),
    SecondaryIndex("lexical_deltas", "by_word", "(tenant, cfg, lexeme) include (delta)"),
    SecondaryIndex("corpus_deltas", "by_tenant", "(tenant, cfg) include (chunks)"),
    # Lets the planner scan a small tenant's vectors exactly instead of searching the HNSW graph of
    # all
    # tenants.
    SecondaryIndex("chunk_vectors", "by_tenant", "(tenant)"),
    SecondaryIndex("visible", "by_tenant", "(tenant)"),
    SecondaryIndex("entity_mentions", "by_key", "(tenant, key, type)"),
    SecondaryIndex(
        "entity_mentions", "by_entity", "(entity_id) include (chunk_id, document_id, ord)"
    ),
    SecondaryIndex("entity_mentions", "by_chunk", "(chunk_id)"),
    SecondaryIndex("claims", "by_subject", "(subject_id)"),
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
                await connection.execute("reset maintenance_work_mem")
            # Autovacuum has not analyzed a freshly loaded partition, and the first queries would
            # get bad
            # plans.
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
