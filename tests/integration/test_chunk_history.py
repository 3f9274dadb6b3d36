from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest

from schemas.generations import Generation, IndexConfig
from schemas.ids import content_id, sha256_hex
from sql.catalog.revisions import PgLineage
from sql.catalog.runs import PgRecordedTexts
from sql.database import Pool, close_pool, open_pool
from sql.index.partitions import create_partitions, drop_partitions
from tests.support.api_client import LOCAL_CALLER, make_caller

DOCUMENT_ID = content_id("document", "default", "", "a")


@dataclass(frozen=True)
class RequestedText:
    id: UUID
    text_sha256: str
    document_id: UUID = DOCUMENT_ID


@pytest.fixture
async def pool(database: str) -> AsyncIterator[Pool]:
    opened = await open_pool(database, size=4, name="past texts")
    yield opened
    await close_pool(opened)


async def insert_test_generation(pool: Pool, name: str, state: str) -> None:
    made = Generation(name=name, config=IndexConfig(), how={}, topics={})
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute(
            "insert into generations (name, config, how, topics, state) "
            "values ($1, '{}', '{}', '{}', $2)",
            name,
            state,
        )
        await create_partitions(connection, made, indexed=True)


async def insert_child_chunk(pool: Pool, of: str, text: str) -> RequestedText:
    identity = content_id("child", text)
    await pool.execute(
        "insert into child_chunks (generation, id, parent_id, document_id, ord, tenant, ordinal, "
        "kind, text, prefix, char_start, char_end, spans, tokens, cfg) "
        "values ($1, $2, $2, $3, '{1,1}', 'default', 0, 'paragraph', $4, '', 0, 1, '[]', 1, "
        "'simple')",
        of,
        identity,
        DOCUMENT_ID,
        text,
    )
    return RequestedText(identity, sha256_hex(text.encode()))


async def insert_run(pool: Pool, on: str, *read: RequestedText) -> None:
    run_record: dict[str, Any] = {"chunks": [{"id": str(one.id)} for one in read], "parents": []}
    await pool.execute(
        "insert into runs (id, tenant, kind, generation, run_record) "
        "values (gen_random_uuid(), 'default', 'query', $1, $2)",
        on,
        run_record,
    )


async def test_text_lookup_needs_id_hash_and_tenant(pool: Pool) -> None:
    await insert_test_generation(pool, "g1", "live")
    here = await insert_child_chunk(pool, "g1", "a river")
    texts = PgRecordedTexts(pool)
    assert await texts.fetch_texts(LOCAL_CALLER, [here]) == {here.id: "a river"}
    assert await texts.fetch_texts(make_caller("stranger"), [here]) == {}
    assert (
        await texts.fetch_texts(LOCAL_CALLER, [RequestedText(here.id, sha256_hex(b"another text"))])
        == {}
    )


async def test_drop_archives_only_texts_used_by_runs(pool: Pool) -> None:
    await insert_test_generation(pool, "g1", "standby")
    await insert_test_generation(pool, "g2", "live")
    read, unread, shared = (
        await insert_child_chunk(pool, "g1", "read"),
        await insert_child_chunk(pool, "g1", "unread"),
        await insert_child_chunk(pool, "g1", "shared"),
    )
    await insert_child_chunk(pool, "g2", "shared")
    await insert_run(pool, "g1", read, shared)
    await drop_partitions(pool, "g1")
    assert await PgRecordedTexts(pool).fetch_texts(LOCAL_CALLER, [read, unread, shared]) == {
        read.id: "read",
        shared.id: "shared",
    }
    history = [dict(row) for row in await pool.fetch("select text, generation from chunk_history")]
    assert history == [{"text": "read", "generation": "g1"}], json.dumps(history)


async def test_interrupted_drop_is_finished_by_the_next(pool: Pool) -> None:
    await insert_test_generation(pool, "g1", "standby")
    read = await insert_child_chunk(pool, "g1", "read")
    await insert_run(pool, "g1", read)
    await drop_partitions(pool, "g1")
    await drop_partitions(pool, "g1")
    assert await PgRecordedTexts(pool).fetch_texts(LOCAL_CALLER, [read]) == {read.id: "read"}


async def test_archived_texts_outlive_later_generation(pool: Pool) -> None:
    for name, state in (("g1", "standby"), ("g2", "standby"), ("g3", "live")):
        await insert_test_generation(pool, name, state)
    read = await insert_child_chunk(pool, "g1", "read")
    await insert_child_chunk(pool, "g2", "read")
    await insert_run(pool, "g1", read)
    for name in ("g1", "g2"):
        await pool.execute("update generations set state = 'dropped' where name = $1", name)
        await drop_partitions(pool, name)
        assert await PgRecordedTexts(pool).fetch_texts(LOCAL_CALLER, [read]) == {read.id: "read"}, (
            name
        )


async def test_tampered_history_text_is_rejected(pool: Pool) -> None:
    await insert_test_generation(pool, "g1", "standby")
    read = await insert_child_chunk(pool, "g1", "read")
    await insert_run(pool, "g1", read)
    await drop_partitions(pool, "g1")
    await pool.execute("update chunk_history set text = 'dead'")
    assert await PgRecordedTexts(pool).fetch_texts(LOCAL_CALLER, [read]) == {}


async def test_lineage_parts_come_from_one_generation(pool: Pool) -> None:
    """The one that is asked for cut the text into fewer parts than another one."""
    settled = (("g1", 1), ("g1", 2), ("g1", 3), ("g2", 1))
    for number, (name, part) in enumerate(settled):
        if part == 1:
            await insert_test_generation(pool, name, "live" if name == "g1" else "standby")
        await pool.execute(
            "insert into revision_parts (generation, tenant, document_id, ord, kind, part, parts, "
            "log_topic, log_partition, log_offset, event_id) "
            "values ($1, 'default', $2, '{1,1}', 'chunks', $3, 3, 'chunked', 0, $4, "
            "gen_random_uuid())",
            name,
            DOCUMENT_ID,
            part,
            number,
        )
    for name, offsets in (("g1", [0, 1, 2]), ("g2", [3]), ("g9", [0, 1, 2])):
        places = await PgLineage(pool).fetch_part_positions(DOCUMENT_ID, [1, 1], name)
        assert [place.position.offset for place in places] == offsets, name
