"""Connections to Postgres, bounded and ready to use: vector and JSON codecs, our search path, plans made for the values at hand."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Mapping

import asyncpg
from pgvector.asyncpg import register_vector

from sql.encoding import encode_json
from sql.errors import translate_database_errors

Pool = asyncpg.Pool
Connection = asyncpg.pool.PoolConnectionProxy | asyncpg.Connection

JSONB_VERSION = b"\x01"
SEARCH_PATH = "anabranch, extensions, public"
SESSION_SETTINGS: Mapping[str, str] = {
    "search_path": SEARCH_PATH,
    # A generic plan for one tenant is hundreds of times slower for another.
    "plan_cache_mode": "force_custom_plan",
    "jit": "off",
    "hnsw.ef_search": "100",
    "hnsw.iterative_scan": "relaxed_order",
}
ASYNC_COMMIT_SETTINGS: Mapping[str, str] = {"synchronous_commit": "off"}
"""For stages whose log is this same Postgres: a lost commit takes the reader's cursor with it, so the event is read again."""


def build_lock_timeout_settings(seconds: float) -> Mapping[str, str]:
    """For connections whose statements fail, with code TABLES_LOCKED, where another transaction keeps them waiting for so long."""
    return {"lock_timeout": f"{seconds:g}s"}


async def open_pool(dsn: str, *, size: int, name: str, settings: Mapping[str, str] | None = None) -> Pool:
    """At most `size` connections, shown as `name` in pg_stat_activity. Use one for ingest and another for questions, so that neither starves the other.

    Raises DatabaseUnavailable.
    """
    with translate_database_errors():
        return await asyncpg.create_pool(
            dsn,
            min_size=min(2, size),
            max_size=size,
            init=prepare_connection,
            connection_class=UnresetConnection,
            server_settings={**SESSION_SETTINGS, "application_name": name, **(settings or {})},
        )


async def connect(dsn: str, *, name: str, settings: Mapping[str, str] | None = None) -> asyncpg.Connection:
    """One connection outside any pool, with the same settings and codecs. Raises DatabaseUnavailable."""
    with translate_database_errors():
        connection = await asyncpg.connect(dsn, server_settings={**SESSION_SETTINGS, "application_name": name, **(settings or {})})
        try:
            await prepare_connection(connection)
        except BaseException:
            connection.terminate()
            raise
        return connection


async def prepare_connection(connection: asyncpg.Connection) -> None:
    await register_vector(connection, schema="extensions")
    await connection.set_type_codec("json", schema="pg_catalog", format="binary", encoder=encode_json, decoder=json.loads)
    await connection.set_type_codec(
        "jsonb",
        schema="pg_catalog",
        format="binary",
        encoder=lambda value: JSONB_VERSION + encode_json(value),
        decoder=lambda data: json.loads(data[1:]),
    )
    await _register_text_configs(connection)


async def _register_text_configs(connection: asyncpg.Connection) -> None:
    """Text search configurations by name, in binary too: COPY takes nothing else."""
    names = {
        row["oid"]: row["cfgname"] for row in await connection.fetch("select oid, cfgname from pg_ts_config where cfgnamespace = 'pg_catalog'::regnamespace")
    }
    packed = {name: struct.pack(">I", oid) for oid, name in names.items()}
    await connection.set_type_codec(
        "regconfig", schema="pg_catalog", format="binary", encoder=packed.__getitem__, decoder=lambda data: names[struct.unpack(">I", data)[0]]
    )


class UnresetConnection(asyncpg.Connection):
    """Given back to the pool as it is: nothing of ours outlives its transaction, so there is nothing to reset."""

    def get_reset_query(self) -> str:
        return ""


async def close_pool(pool: Pool, *, timeout_s: float = 1.0) -> None:
    """Close, waiting so long for what still runs, then hang up."""
    try:
        async with asyncio.timeout(timeout_s):
            await pool.close()
    except TimeoutError:
        pool.terminate()
