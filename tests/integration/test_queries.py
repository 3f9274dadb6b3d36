"""Every query is valid against the migrated schema."""

from __future__ import annotations

import asyncpg

from sql.pool import connect
from sql.query_loader import FOLDER, load_query, read_queries

TABLES = {"delete_topic_rows": "topics"}
"""Tables to substitute, where `child_chunks` lacks a column of the query."""


async def test_all_queries_prepare_against_schema(database: str) -> None:
    connection = await connect(database, name="test queries")
    failures = {}
    try:
        for name, text in read_queries(FOLDER).items():
            if not text.startswith("-- Included"):
                try:
                    table = TABLES.get(name, "child_chunks")
                    await connection.prepare(load_query(name, dimension=24, table=table))
                except asyncpg.PostgresError as error:
                    failures[name] = str(error)
    finally:
        await connection.close()
    assert failures == {}
