"""What a change costs and what it leaves: engine calls by their metric, rows of every derived table."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest

from anabranch.composition.overrides import Overrides
from engines.embed.null import NullEmbedder
from engines.extract.null import NullExtractor
from schemas.events import DocumentAmended
from schemas.ids import document_id
from sql.derived_tables import PARTITIONED
from sql.erasure import PgErasure
from streams.codec import Codec
from streams.submission import submission
from tests.pipeline import TIME, Pipeline, pipeline
from tests.property.world import LineParser

REAL = Overrides(embedder=NullEmbedder(dimension=8))
"""Everything as it is shipped, without the model."""
QUICK = Overrides(parser=LineParser(), embedder=NullEmbedder(dimension=8), extractor=NullExtractor())
"""The cheapest there are."""
WORDS = [
    "the",
    "river",
    "harbour",
    "council",
    "lock",
    "keeper",
    "boat",
    "water",
    "level",
    "spring",
    "flood",
    "bridge",
    "toll",
    "ferry",
    "timber",
    "quay",
    "tide",
    "market",
    "stone",
    "mill",
    "gate",
    "canal",
]


def sentence(mood: random.Random) -> str:
    return " ".join(mood.choice(WORDS) + mood.choice(["", "s", "er"]) for _ in range(mood.randint(8, 24))).capitalize() + "."


def paragraphs(mood: random.Random, number: int) -> list[str]:
    return [" ".join(sentence(mood) for _ in range(mood.randint(2, 6))) for _ in range(number)]


async def asked_by(at_work: Pipeline, texts: Mapping[str, str | None]) -> dict[str, float]:
    before = at_work.engine_calls()
    await at_work.fill(texts)
    return {engine: calls - before.get(engine, 0) for engine, calls in at_work.engine_calls().items() if calls > before.get(engine, 0)}


@pytest.mark.parametrize("seed", range(3))
async def test_a_paragraph_on_the_first_page_of_a_hundred_costs_at_most_three_embeddings(seed: int, database: str, tmp_path: Path) -> None:
    mood = random.Random(seed)
    told = paragraphs(mood, 750)
    assert sum(len(paragraph.split()) for paragraph in told) > 100 * 400, "words of a hundred pages"
    async with pipeline(tmp_path, database, REAL) as at_work:
        whole = await asked_by(at_work, {"report": "\n\n".join(told)})
        assert whole["embed"] > 300 and whole["extract"] > 80
        for place in (0, 2, 4):
            told.insert(place, paragraphs(mood, 1)[0])
            asked = await asked_by(at_work, {"report": "\n\n".join(told)})
            assert 1 <= asked["embed"] <= 3 and 1 <= asked["extract"] <= 3, (place, asked)


@pytest.mark.parametrize(("documents", "overrides"), [(200, REAL), (2_000, QUICK)], ids=["as shipped", "two thousand"])
async def test_what_is_sent_again_unchanged_costs_no_engine_call_and_no_write_to_a_derived_table(
    documents: int, overrides: Overrides, database: str, tmp_path: Path
) -> None:
    mood = random.Random(1)
    batches = [{f"doc-{number}": sentence(mood) for number in range(first, min(first + 500, documents))} for first in range(0, documents, 500)]
    async with pipeline(tmp_path, database, overrides, maintenance_s=3600) as at_work:
        for batch in batches:
            await at_work.fill(batch)
        rows = await stored(at_work)
        assert len(rows["child_chunks"]) == len(rows["visible"]) == documents
        for batch in batches:
            assert await asked_by(at_work, batch) == {}
        assert await stored(at_work) == rows
        assert await at_work.pool.fetchval("select count(*) from revision_states where unchanged") == documents


async def test_an_amendment_asks_no_engine_and_writes_to_no_derived_table(database: str, tmp_path: Path) -> None:
    async with pipeline(tmp_path, database, REAL) as at_work:
        await at_work.fill({"a": "The lock keeper opens the gate."})
        rows, asked = await stored(at_work), at_work.engine_calls()
        amended = DocumentAmended(external_id="a", title="Locks", tags=["water"], metadata={"year": 2026})
        await at_work.worker.storage.log.append([await submission(amended, "amended", source="test", time=TIME, codec=Codec())])
        await at_work.quiet()
        [row] = await at_work.pool.fetch("select title, tags, metadata, amended from documents")
        assert tuple(row) == ("Locks", ["water"], {"year": 2026}, ["metadata", "tags", "title"])
        assert (await stored(at_work), at_work.engine_calls()) == (rows, asked)


async def test_a_document_that_shrinks_from_fifty_chunks_to_three_leaves_nothing_behind(database: str, tmp_path: Path) -> None:
    mood = random.Random(2)
    told = "\n\n".join(f"# Part {number}\n\n{sentence(mood)} Zephyr Quay Ltd pays {number + 10} euros to Clara Nunes." for number in range(50))
    shrunk = "\n\n".join(f"# Part {number}\n\n" + " ".join(f"Mill {number} is closed. {sentence(mood)}" for _ in range(6)) for number in range(3))
    async with pipeline(tmp_path, database, REAL) as at_work:
        await at_work.fill({"a": told, "b": "Clara Nunes keeps the bridge."})
        before = await at_work.pool.fetchval("select chunks from visible where document_id = $1", document_id("default", "", "a"))
        assert before >= 50
        await at_work.fill({"a": shrunk})
        left = await of_document(at_work, "a")
        assert left["child_chunks"] == left["chunk_vectors"] == left["visible chunks"] == 3
        assert await words_of(at_work, "zephyr", "clara") == {"clara": 1}
        assert await at_work.pool.fetchval("select count(*) from entity_mentions where key like 'zephyr%'") == 0
        orders = {row["ord"] for table in PARTITIONED[:-2] for row in await rows_of(at_work, table, "a")}
        assert len(orders) == 1


async def test_a_deleted_document_leaves_words_vectors_and_graph_and_an_entity_lives_on_where_others_name_it(database: str, tmp_path: Path) -> None:
    async with pipeline(tmp_path, database, REAL) as at_work:
        await at_work.fill({"a": "Clara Nunes leases the Zephyr Quay from Harbour Works Ltd.", "b": "Clara Nunes keeps the bridge."})
        assert (await words_of(at_work, "zephyr", "clara")) == {"zephyr": 1, "clara": 2}
        named = "select document_id, count(*) from entity_mentions where key = 'clara nunes' group by 1"
        assert len(await at_work.pool.fetch(named)) == 2
        await at_work.fill({"a": None})
        assert {table: count for table, count in (await of_document(at_work, "a")).items() if count} == {}
        assert await words_of(at_work, "zephyr", "clara") == {"clara": 1}
        assert [row["document_id"] for row in await at_work.pool.fetch(named)] == [document_id("default", "", "b")]


async def stored(at_work: Pipeline) -> dict[str, list[str]]:
    """Every row version of the derived tables: a row that is written again is another one."""
    return {
        table: sorted(
            f"{row['tableoid']} {row['ctid']} {row['xmin']}" for row in await at_work.pool.fetch(f"select tableoid, ctid::text, xmin::text from {table}")
        )
        for table in PARTITIONED
    }


async def rows_of(at_work: Pipeline, table: str, name: str) -> list[dict[str, str]]:
    return [dict(row) for row in await at_work.pool.fetch(f"select ord::text from {table} where document_id = $1", document_id("default", "", name))]


async def of_document(at_work: Pipeline, name: str) -> dict[str, int]:
    counts = {table: len(await rows_of(at_work, table, name)) for table in PARTITIONED[:-2]}
    chunks = await at_work.pool.fetchval("select chunks from visible where document_id = $1", document_id("default", "", name))
    return counts | {"visible chunks": chunks or 0}


async def words_of(at_work: Pipeline, *words: str) -> dict[str, int]:
    rows = await at_work.pool.fetch("select lexeme, sum(delta) as n from lexical_deltas where lexeme = any($1) group by 1 having sum(delta) <> 0", list(words))
    return {row["lexeme"]: row["n"] for row in rows}


async def test_what_is_said_of_a_document_after_it_was_withdrawn_goes_when_it_is_erased(database: str, tmp_path: Path) -> None:
    tenant, document = "default", document_id("default", "", "a")
    async with pipeline(tmp_path, database, REAL) as at_work:
        await at_work.fill({"a": "The lock keeper opens the gate."})
        await at_work.fill({"a": None})
        late = DocumentAmended(external_id="a", title="Secret")
        await at_work.worker.storage.log.append([await submission(late, "late", source="test", time=TIME, codec=Codec())])
        await at_work.quiet()
        count = "select count(*) from document_amendments where document_id = $1"
        assert await at_work.pool.fetchval(count, document) == 1
        await PgErasure(at_work.pool).sweep(uuid4(), tenant, [document], before=datetime.now(UTC), readable=False)
        assert await at_work.pool.fetchval(count, document) == 0
