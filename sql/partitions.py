"""A generation's own partitions of the derived tables."""

from __future__ import annotations

from schemas.generations import Generation
from sql.derived_tables import PARTITIONED
from sql.pool import Connection

LOCK_TIMEOUT = "2s"


async def create_partitions(connection: Connection, generation: Generation) -> None:
    """Each is made standalone and then attached: `create table … partition of` would wait behind one reader and hold up all queries behind it.

    Raises LockNotAvailableError when somebody holds a parent table for longer than the lock's time-out; nothing is left behind then.
    """
    await connection.execute(f"set local lock_timeout = '{LOCK_TIMEOUT}'")
    for table in PARTITIONED:
        partition = f"{table}_{generation.name}"
        await connection.execute(
            f"create table {partition} (like {table} including all);"
            # With this check known, attaching need not scan.
            f"alter table {partition} add constraint {partition}_own check (generation = '{generation.name}')"
        )
        if table == "chunk_vectors":
            await _fix_dimension(connection, partition, generation.config.embed.dimension)
        await connection.execute(f"alter table {table} attach partition {partition} for values in ('{generation.name}')")


async def _fix_dimension(connection: Connection, partition: str, dimension: int) -> None:
    await connection.execute(f"alter table {partition} add constraint {partition}_dimension check (vector_dims(embedding) = {dimension})")
