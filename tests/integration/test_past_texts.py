from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest

from schemas.generations import Generation, IndexConfig
from schemas.ids import content_id, sha256_hex
from sql.partitions import create_partitions, drop_partitions
from sql.past_texts import PgPastTexts
from sql.pool import Pool, close_pool, open_pool

DOCUMENT = content_id("document", "default", "", "a")


@dataclass(frozen=True)
class Wanted:
    id: UUID
    text_sha256: str
    document_id: UUID = DOCUMENT


@pytest.fixture
async def pool(database: str) -> AsyncIterator[Pool]:
    opened = await open_pool(database, size=4, name="past texts")
    yield opened
    await close_pool(opened)


async def generation(pool: Pool, name: str, state: str) -> None:
    made = Generation(name=name, config=IndexConfig(), how={}, topics={})
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute("insert into generations (name, config, how, topics, state) values ($1, '{}', '{}', '{}', $2)", name, state)
        await create_partitions(connection, made, indexed=True)


async def child(pool: Pool, of: str, text: str) -> Wanted:
    identity = content_id("child", text)
    await pool.execute(
        "insert into child_chunks (generation, id, parent_id, document_id, ord, tenant, ordinal, kind, text, prefix, char_start, char_end, spans, tokens, cfg) "
        "values ($1, $2, $2, $3, '{1,1}', 'default', 0, 'paragraph', $4, '', 0, 1, '[]', 1, 'simple')",
        of, identity, DOCUMENT, text,
    )  # fmt: skip
    return Wanted(identity, sha256_hex(text.encode()))


async def ran(pool: Pool, on: str, *read: Wanted) -> None:
    basis: dict[str, Any] = {"chunks": [{"id": str(one.id)} for one in read], "parents": []}
    await pool.execute("insert into runs (id, tenant, kind, generation, basis) values (gen_random_uuid(), 'default', 'query', $1, $2)", on, basis)


async def test_a_text_is_found_by_id_and_hash_and_not_for_another_tenant(pool: Pool) -> None:
    await generation(pool, "g1", "live")
    here = await child(pool, "g1", "a river")
    texts = PgPastTexts(pool)
    assert await texts.find("default", [here]) == {here.id: "a river"}
    assert await texts.find("stranger", [here]) == {}
    assert await texts.find("default", [Wanted(here.id, sha256_hex(b"another text"))]) == {}


async def test_a_dropped_generation_leaves_the_texts_that_answers_were_made_from_and_no_others(pool: Pool) -> None:
    await generation(pool, "g1", "standby")
    await generation(pool, "g2", "live")
    read, unread, shared = await child(pool, "g1", "read"), await child(pool, "g1", "unread"), await child(pool, "g1", "shared")
    await child(pool, "g2", "shared")
    await ran(pool, "g1", read, shared)
    await drop_partitions(pool, "g1")
    assert await PgPastTexts(pool).find("default", [read, unread, shared]) == {read.id: "read", shared.id: "shared"}
    kept = [dict(row) for row in await pool.fetch("select text, generation from chunk_history")]
    assert kept == [{"text": "read", "generation": "g1"}], json.dumps(kept)


async def test_a_drop_that_was_cut_off_is_finished_by_the_next(pool: Pool) -> None:
    await generation(pool, "g1", "standby")
    read = await child(pool, "g1", "read")
    await ran(pool, "g1", read)
    await drop_partitions(pool, "g1")
    assert await drop_partitions(pool, "g1") == 0
    assert await PgPastTexts(pool).find("default", [read]) == {read.id: "read"}
