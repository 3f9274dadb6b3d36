"""Lower bound: one process, one binary COPY, no state, no increments."""

from __future__ import annotations

import asyncio

import asyncpg
from pgvector.asyncpg import register_vector

from benchmarks.peers.workload import (
    DIMENSION,
    AdapterArguments,
    embed,
    list_files,
    parse_adapter_arguments,
    split_text,
)

TABLE = f"""
create extension if not exists vector;
create table floor_chunks (
  doc text, chunk_no int, txt text, embedding vector({DIMENSION}), primary key (doc, chunk_no)
)
"""


async def index(arguments: AdapterArguments) -> None:
    records = []
    for path in list_files(arguments.docs):
        chunks = split_text(path.read_text())
        for ordinal, (chunk, vector) in enumerate(zip(chunks, embed(chunks), strict=True)):
            records.append((path.name, ordinal, chunk, vector))
    connection = await asyncpg.connect(arguments.dsn)
    await connection.execute(TABLE)
    await register_vector(connection)
    await connection.copy_records_to_table("floor_chunks", records=records)
    await connection.close()


if __name__ == "__main__":
    asyncio.run(index(parse_adapter_arguments()))
