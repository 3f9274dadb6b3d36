"""Find a canary word in tables, files and topics: plain, in any case, and in base64."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from sql.database import Connection, Pool
from streams.kafka.client import KafkaClientSettings

ESCAPED_COLUMN = "encode(coalesce({}, ''), 'escape')"


def contains_canary(data: bytes, canaries: Iterable[str]) -> bool:
    lower = data.lower()
    return any(
        canary.lower().encode() in lower or any(code in data for code in _base64_forms(canary))
        for canary in canaries
    )


def _base64_forms(canary: str) -> list[bytes]:
    """Return the base64 forms of a word at each of its three alignments."""
    plain = canary.encode()
    shifted = (base64.b64encode(b"\0" * shift + plain) for shift in range(3))
    return [code[4 if shift else 0 :].rstrip(b"=")[:-1] for shift, code in enumerate(shifted)]


async def list_tables(connection: Connection | Pool) -> list[str]:
    """List the tables of every schema but the server's own, partitions included."""
    query = (
        "select format('%I.%I', n.nspname, c.relname) as name from pg_class c "
        "join pg_namespace n on n.oid = c.relnamespace "
        "where c.relkind = 'r' and n.nspname not in ('pg_catalog', 'information_schema', "
        "'pg_toast') order by 1"
    )
    return [row["name"] for row in await connection.fetch(query)]


async def find_in_tables(pool: Pool, canaries: Iterable[str]) -> set[str]:
    """Find tables, and topics of the log, with a canary; binary columns are read as text."""
    found, words = set(), list(canaries)
    for table in await list_tables(pool):
        columns = await pool.fetch(
            "select attname, atttypid = 'bytea'::regtype as binary from pg_attribute "
            "where attrelid = $1::text::regclass and attnum > 0",
            table,
        )
        binary = [
            ESCAPED_COLUMN.format(f't."{row["attname"]}"') for row in columns if row["binary"]
        ]
        place = "t.topic" if table == "anabranch.events" else f"'{table}'"
        text = " || ".join(["t::text", *binary])
        for row in await pool.fetch(f"select {place} as place, {text} as text from {table} t"):
            if contains_canary(row["text"].encode(), words):
                found.add(row["place"])
    return found


def find_in_files(folder: Path, canaries: Iterable[str]) -> set[str]:
    """Return the files whose name or content contains a canary, relative to the folder."""
    words = list(canaries)
    files = ((str(path.relative_to(folder)), data) for path, data in read_files(folder))
    return {
        name
        for name, data in files
        if contains_canary(name.encode(), words) or contains_canary(data, words)
    }


def read_files(*folders: Path) -> Iterator[tuple[Path, bytes]]:
    """Yield every file that is not deleted meanwhile, as Postgres deletes some of its own."""
    for path in {path for folder in folders for path in folder.rglob("*")}:
        if path.is_file() and not path.is_symlink():
            with suppress(FileNotFoundError):
                yield path, path.read_bytes()


def find_in_topics(settings: KafkaClientSettings, canaries: Iterable[str]) -> set[str]:
    """Return the topics with a canary in keys, headers or values, as any consumer reads them."""
    words = list(canaries)
    consumer = Consumer(
        {
            "bootstrap.servers": settings.bootstrap_servers,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    try:
        found = consumer.list_topics(timeout=60).topics
        places = [
            TopicPartition(name, number, OFFSET_BEGINNING)
            for name in found
            if name.startswith(settings.topic_prefix)
            for number in found[name].partitions
        ]
        consumer.assign(places)
        return {
            name.removeprefix(settings.topic_prefix)
            for name, data in _read_records(consumer, len(places))
            if contains_canary(data, words)
        }
    finally:
        consumer.close()


def _read_records(consumer: Consumer, partitions: int) -> Iterable[tuple[str, bytes]]:
    """Yield topic and bytes of every record up to the end of each partition."""
    while partitions:
        for message in consumer.consume(500, 1.0):
            if (error := message.error()) is not None:
                assert error.code() == -191, error  # the end of a partition
                partitions -= 1
                continue
            headers: Any = message.headers() or []
            parts = [
                message.key(),
                message.value(),
                *(part for name, value in headers for part in (name.encode(), value)),
            ]
            yield (
                message.topic() or "",
                b"\n".join(part if isinstance(part, bytes) else b"" for part in parts),
            )
