"""Count the engine calls and rewritten rows that a change causes."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest

from anabranch.config.overrides import Overrides
from benchmarks.null_engines import NullExtractor
from schemas.events import DocumentAmended
from schemas.ids import make_document_id
from sql.index.derived_tables import PARTITIONED_TABLES
from sql.operations.erasure import PgErasure
from streams.codec import Codec
from streams.publisher import build_raw_record
from tests.fakes.null_embedder import NullEmbedder
from tests.support.pipeline import EVENT_TIME, Pipeline, run_pipeline
from tests.support.repetitions import repeat
from tests.support.simulated_pipeline import LineParser

REAL_PARSER_OVERRIDES = Overrides(embedder=NullEmbedder(dimension=8))
"""Everything as it is shipped, without the model."""
FAST_OVERRIDES = Overrides(
    parser=LineParser(), embedder=NullEmbedder(dimension=8), extractor=NullExtractor()
)
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


def generate_sentence(mood: random.Random) -> str:
    return (
        " ".join(
            mood.choice(WORDS) + mood.choice(["", "s", "er"]) for _ in range(mood.randint(8, 24))
        ).capitalize()
        + "."
    )


def generate_paragraphs(mood: random.Random, number: int) -> list[str]:
    return [
        " ".join(generate_sentence(mood) for _ in range(mood.randint(2, 6))) for _ in range(number)
    ]


async def count_engine_calls_for(
    at_work: Pipeline, texts: Mapping[str, str | None]
) -> dict[str, float]:
    before = at_work.count_engine_calls()
    await at_work.push_and_wait(texts)
    return {
        engine: calls - before.get(engine, 0)
        for engine, calls in at_work.count_engine_calls().items()
        if calls > before.get(engine, 0)
    }


@pytest.mark.parametrize("seed", repeat(3))
async def test_edited_paragraph_costs_at_most_three_embeddings(
    seed: int, database: str, tmp_path: Path
) -> None:
    mood = random.Random(seed)
    paragraphs = generate_paragraphs(mood, 375)
    assert sum(len(paragraph.split()) for paragraph in paragraphs) > 50 * 400, (
        "words of fifty pages"
    )
    async with run_pipeline(tmp_path, database, REAL_PARSER_OVERRIDES) as at_work:
        whole = await count_engine_calls_for(at_work, {"report": "\n\n".join(paragraphs)})
        assert whole["embed"] > 100 and whole["extract"] > 40
        for place in (0, 2, 4):
            paragraphs.insert(place, generate_paragraphs(mood, 1)[0])
            engine_calls = await count_engine_calls_for(
                at_work, {"report": "\n\n".join(paragraphs)}
            )
            assert 1 <= engine_calls["embed"] <= 3 and 1 <= engine_calls["extract"] <= 3, (
                place,
                engine_calls,
            )


@pytest.mark.parametrize(
    ("documents", "overrides"),
    [
        pytest.param(30, REAL_PARSER_OVERRIDES, id="as shipped"),
        pytest.param(2_000, FAST_OVERRIDES, id="two thousand", marks=pytest.mark.long),
    ],
)
async def test_unchanged_document_costs_no_engine_calls_or_writes(
    documents: int, overrides: Overrides, database: str, tmp_path: Path
) -> None:
    mood = random.Random(1)
    batches = [
        {
            f"doc-{number}": generate_sentence(mood)
            for number in range(first, min(first + 500, documents))
        }
        for first in range(0, documents, 500)
    ]
    async with run_pipeline(tmp_path, database, overrides, maintenance_s=3600) as at_work:
        for batch in batches:
            await at_work.push_and_wait(batch)
        rows = await list_row_versions(at_work)
        assert len(rows["child_chunks"]) == len(rows["visible"]) == documents
        for batch in batches:
            assert await count_engine_calls_for(at_work, batch) == {}
        assert await list_row_versions(at_work) == rows
        assert (
            await at_work.pool.fetchval("select count(*) from revision_states where unchanged")
            == documents
        )


async def test_amendment_costs_no_engine_calls_or_derived_writes(
    database: str, tmp_path: Path
) -> None:
    async with run_pipeline(tmp_path, database, REAL_PARSER_OVERRIDES) as at_work:
        await at_work.push_and_wait({"a": "The lock keeper opens the gate."})
        rows, engine_calls = await list_row_versions(at_work), at_work.count_engine_calls()
        amended = DocumentAmended(
            external_id="a", title="Locks", tags=["water"], metadata={"year": 2026}
        )
        await at_work.worker.storage.log.append(
            [
                await build_raw_record(
                    amended, "amended", source="test", time=EVENT_TIME, codec=Codec()
                )
            ]
        )
        await at_work.wait_until_idle()
        [row] = await at_work.pool.fetch("select title, tags, metadata, amended from documents")
        assert tuple(row) == ("Locks", ["water"], {"year": 2026}, ["metadata", "tags", "title"])
        assert (await list_row_versions(at_work), at_work.count_engine_calls()) == (
            rows,
            engine_calls,
        )


async def test_shrunk_document_leaves_no_old_chunks(database: str, tmp_path: Path) -> None:
    mood = random.Random(2)
    text = "\n\n".join(
        (
            f"# Part {number}\n\n"
            f"{generate_sentence(mood)} Zephyr Quay Ltd pays {number + 10} euros to Clara Nunes."
        )
        for number in range(50)
    )
    shrunk = "\n\n".join(
        f"# Part {number}\n\n"
        + " ".join(f"Mill {number} is closed. {generate_sentence(mood)}" for _ in range(6))
        for number in range(3)
    )
    async with run_pipeline(tmp_path, database, REAL_PARSER_OVERRIDES) as at_work:
        await at_work.push_and_wait({"a": text, "b": "Clara Nunes keeps the bridge."})
        before = await at_work.pool.fetchval(
            "select chunks from visible where document_id = $1",
            make_document_id("default", "", "a"),
        )
        assert before >= 50
        await at_work.push_and_wait({"a": shrunk})
        left = await count_document_rows(at_work, "a")
        assert left["child_chunks"] == left["chunk_vectors"] == left["visible chunks"] == 3
        assert await fetch_word_counts(at_work, "zephyr", "clara") == {"clara": 1}
        assert (
            await at_work.pool.fetchval(
                "select count(*) from entity_mentions where key like 'zephyr%'"
            )
            == 0
        )
        orders = {
            row["ord"]
            for table in PARTITIONED_TABLES[:-2]
            for row in await fetch_rows(at_work, table, "a")
        }
        assert len(orders) == 1


async def test_deleted_document_leaves_index_but_shared_entities_stay(
    database: str, tmp_path: Path
) -> None:
    async with run_pipeline(tmp_path, database, REAL_PARSER_OVERRIDES) as at_work:
        await at_work.push_and_wait(
            {
                "a": "Clara Nunes leases the Zephyr Quay from Harbour Works Ltd.",
                "b": "Clara Nunes keeps the bridge.",
            }
        )
        assert (await fetch_word_counts(at_work, "zephyr", "clara")) == {"zephyr": 1, "clara": 2}
        named = (
            "select document_id, count(*) from entity_mentions where key = 'clara nunes' group by 1"
        )
        assert len(await at_work.pool.fetch(named)) == 2
        await at_work.push_and_wait({"a": None})
        assert {
            table: count
            for table, count in (await count_document_rows(at_work, "a")).items()
            if count
        } == {}
        assert await fetch_word_counts(at_work, "zephyr", "clara") == {"clara": 1}
        assert [row["document_id"] for row in await at_work.pool.fetch(named)] == [
            make_document_id("default", "", "b")
        ]


async def list_row_versions(at_work: Pipeline) -> dict[str, list[str]]:
    """List every row version of the derived tables; a rewritten row has another version."""
    return {
        table: sorted(
            f"{row['tableoid']} {row['ctid']} {row['xmin']}"
            for row in await at_work.pool.fetch(
                f"select tableoid, ctid::text, xmin::text from {table}"
            )
        )
        for table in PARTITIONED_TABLES
    }


async def fetch_rows(at_work: Pipeline, table: str, name: str) -> list[dict[str, str]]:
    return [
        dict(row)
        for row in await at_work.pool.fetch(
            f"select ord::text from {table} where document_id = $1",
            make_document_id("default", "", name),
        )
    ]


async def count_document_rows(at_work: Pipeline, name: str) -> dict[str, int]:
    counts = {
        table: len(await fetch_rows(at_work, table, name)) for table in PARTITIONED_TABLES[:-2]
    }
    chunks = await at_work.pool.fetchval(
        "select chunks from visible where document_id = $1", make_document_id("default", "", name)
    )
    return counts | {"visible chunks": chunks or 0}


async def fetch_word_counts(at_work: Pipeline, *words: str) -> dict[str, int]:
    rows = await at_work.pool.fetch(
        "select lexeme, sum(delta) as n from lexical_deltas where lexeme = any($1) "
        "group by 1 having sum(delta) <> 0",
        list(words),
    )
    return {row["lexeme"]: row["n"] for row in rows}


async def test_amendment_after_withdrawal_is_removed_by_erasure(
    database: str, tmp_path: Path
) -> None:
    tenant, document = "default", make_document_id("default", "", "a")
    async with run_pipeline(tmp_path, database, REAL_PARSER_OVERRIDES) as at_work:
        await at_work.push_and_wait({"a": "The lock keeper opens the gate."})
        await at_work.push_and_wait({"a": None})
        late = DocumentAmended(external_id="a", title="Secret")
        await at_work.worker.storage.log.append(
            [await build_raw_record(late, "late", source="test", time=EVENT_TIME, codec=Codec())]
        )
        await at_work.wait_until_idle()
        count = "select count(*) from document_amendments where document_id = $1"
        assert await at_work.pool.fetchval(count, document) == 1
        await PgErasure(at_work.pool).erase_rows(
            uuid4(), tenant, [document], before=datetime.now(UTC), readable=False
        )
        assert await at_work.pool.fetchval(count, document) == 0
