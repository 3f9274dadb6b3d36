"""Copy the log, the keys or all of a database into another one."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

import asyncpg

from sql.database import Pool, close_pool, open_pool


async def copy_log(source: str, target: str) -> None:
    """Copy the log as a dump of its tables restores it, without offsets or transaction ids."""
    old, new = (
        await open_pool(source, size=2, name="test"),
        await open_pool(target, size=2, name="test"),
    )
    await copy_table(
        old, new, "events", "position, topic, key, headers, value, appended_at", "xact", "'3'::xid8"
    )
    await new.execute(
        "select setval(pg_get_serial_sequence('events', 'position'), (select max(position) "
        "from events))"
    )
    await close_pool(old)
    await close_pool(new)


async def copy_keys(source: str, target: str) -> None:
    """Copy the keystore as a restored backup."""
    old, new = (
        await open_pool(source, size=2, name="test"),
        await open_pool(target, size=2, name="test"),
    )
    for row in await old.fetch(
        "select table_name from information_schema.tables where table_schema = 'keystore'"
    ):
        await copy_table(old, new, f"keystore.{row['table_name']}", "*")
    await close_pool(old)
    await close_pool(new)


async def copy_database(database: str, other_database: str) -> None:
    """Copy the whole database as a restored backup."""
    (source, _), (target, server) = (split_dsn(one) for one in (database, other_database))
    connection = await asyncpg.connect(server)
    await connection.execute(f'drop database "{target}"')
    await connection.execute(f'create database "{target}" template "{source}"')
    await connection.close()


def split_dsn(dsn: str) -> tuple[str, str]:
    """Split a DSN into the database's name and the DSN of the server's default database."""
    found = urlsplit(dsn)
    return found.path[1:], urlunsplit(found._replace(path="/postgres"))


async def copy_table(
    old: Pool, new: Pool, table: str, columns: str, more: str = "", value: str = ""
) -> None:
    rows = await old.fetch(f"select {columns} from {table}")
    if not rows:
        return
    names = list(rows[0].keys())
    places = ", ".join(f"${number}" for number in range(1, len(names) + 1))
    extra = (f", {more}", f", {value}") if more else ("", "")
    overriding = "overriding system value " if table == "events" else ""
    await new.executemany(
        f"insert into {table} ({', '.join(names)}{extra[0]}) {overriding}values "
        f"({places}{extra[1]}) on conflict do nothing",
        [tuple(row) for row in rows],
    )
