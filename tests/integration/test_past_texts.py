from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest

from schemas.generations import Generation, IndexConfig
from schemas.ids import content_id, sha256_hex
from sql.lineage import PgLineage
from sql.partitions import create_partitions, drop_partitions
from sql.past_texts import PgPastTexts
from sql.pool import Pool, close_pool, open_pool
from tests.callers import LOCAL, caller

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
    assert await texts.find(LOCAL, [here]) == {here.id: "a river"}
    assert await texts.find(caller("stranger"), [here]) == {}
    assert await texts.find(LOCAL, [Wanted(here.id, sha256_hex(b"another text"))]) == {}


async def test_a_dropped_generation_leaves_the_texts_that_answers_were_made_from_and_no_others(pool: Pool) -> None:
    await generation(pool, "g1", "standby")
    await generation(pool, "g2", "live")
    read, unread, shared = await child(pool, "g1", "read"), await child(pool, "g1", "unread"), await child(pool, "g1", "shared")
    await child(pool, "g2", "shared")
    await ran(pool, "g1", read, shared)
    await drop_partitions(pool, "g1")
    assert await PgPastTexts(pool).find(LOCAL, [read, unread, shared]) == {read.id: "read", shared.id: "shared"}
    kept = [dict(row) for row in await pool.fetch("select text, generation from chunk_history")]
    assert kept == [{"text": "read", "generation": "g1"}], json.dumps(kept)


async def test_a_drop_that_was_cut_off_is_finished_by_the_next(pool: Pool) -> None:
    await generation(pool, "g1", "standby")
    read = await child(pool, "g1", "read")
    await ran(pool, "g1", read)
    await drop_partitions(pool, "g1")
    assert await drop_partitions(pool, "g1") == 0
    assert await PgPastTexts(pool).find(LOCAL, [read]) == {read.id: "read"}


async def test_texts_of_a_generation_that_went_before_outlive_the_one_that_had_them_since(pool: Pool) -> None:
    for name, state in (("g1", "standby"), ("g2", "standby"), ("g3", "live")):
        await generation(pool, name, state)
    read = await child(pool, "g1", "read")
    await child(pool, "g2", "read")
    await ran(pool, "g1", read)
    for name in ("g1", "g2"):
        await pool.execute("update generations set state = 'dropped' where name = $1", name)
        await drop_partitions(pool, name)
        assert await PgPastTexts(pool).find(LOCAL, [read]) == {read.id: "read"}, name


async def test_a_text_of_the_history_that_was_tampered_with_is_not_taken_for_the_one_that_was_read(pool: Pool) -> None:
    await generation(pool, "g1", "standby")
    read = await child(pool, "g1", "read")
    await ran(pool, "g1", read)
    await drop_partitions(pool, "g1")
    await pool.execute("update chunk_history set text = 'dead'")
    assert await PgPastTexts(pool).find(LOCAL, [read]) == {}


async def test_the_parts_of_a_step_are_all_of_one_generation(pool: Pool) -> None:
    """The one that is asked for cut the text into fewer parts than another one."""
    settled = (("g1", 1), ("g1", 2), ("g1", 3), ("g2", 1))
    for number, (name, part) in enumerate(settled):
        if part == 1:
            await generation(pool, name, "live" if name == "g1" else "standby")
        await pool.execute(
            "insert into settled (generation, tenant, document_id, ord, kind, part, parts, log_topic, log_partition, log_offset, fact_id) "
            "values ($1, 'default', $2, '{1,1}', 'chunks', $3, 3, 'chunked', 0, $4, gen_random_uuid())",
            name, DOCUMENT, part, number,
        )  # fmt: skip
    for name, offsets in (("g1", [0, 1, 2]), ("g2", [3]), ("g9", [0, 1, 2])):
        places = await PgLineage(pool).places(DOCUMENT, [1, 1], name)
        assert [place.position.offset for place in places] == offsets, name
