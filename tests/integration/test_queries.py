"""Every query is valid against the migrated schema, and a connection looks up no known types."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import asyncpg
import pytest

from sql.database import FOLDER, UnresetConnection, connect, load_query, read_queries
from sql.page_cursor import PageOrder

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
                    # The order of lists; each column of each is tested in test_list_filters.py.
                    order = PageOrder("1", "bigint", True, None, None).substitutions
                    query = load_query(name, dimension=24, table=table, deletes="", **order)
                    await connection.prepare(query)
                except asyncpg.PostgresError as error:
                    failures[name] = str(error)
    finally:
        await connection.close()
    assert failures == {}


async def test_built_in_types_are_looked_up_once_per_process(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lookups: list[object] = []

    def count_lookups(method: str) -> None:
        look_up = getattr(asyncpg.Connection, method)

        async def look_up_and_count(connection: asyncpg.Connection, *args: Any) -> Any:
            lookups.append(args[0])
            return await look_up(connection, *args)

        monkeypatch.setattr(asyncpg.Connection, method, look_up_and_count)

    count_lookups("_introspect_types")
    count_lookups("_introspect_type")
    monkeypatch.setattr(UnresetConnection, "_built_in_types", {})
    for number in range(3):
        connection = await connect(database, name="test queries")
        ids = [UUID(int=number)]
        try:
            assert await connection.fetchval("select $1::uuid[]", ids) == ids
            # With one that is known and one that is not.
            row = await connection.fetchrow("select $1::uuid[], $2::date[]", ids, [])
            assert tuple(row or ()) == (ids, [])
        finally:
            await connection.close()
    # Ids of types of extensions differ between databases.
    built_in = [name for name in lookups if name not in ("vector", "halfvec", "sparsevec")]
    assert built_in[:3] == ["json", "jsonb", "regconfig"]
    assert len(built_in) == 3 + 2
