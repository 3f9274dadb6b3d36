"""What the tables must withstand and hold, beyond the suite that every ledger passes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import asyncpg
import numpy as np
import pytest
import pytest_asyncio

from schemas.errors import DatabaseUnavailable
from schemas.events import DocumentChunked, EventBuried, Fact
from schemas.events.dead_letters import Place
from schemas.generations import EmbedConfig, Generation, IndexConfig
from schemas.ids import content_id
from schemas.ports.ledger import Claim, Claimed, MemoKey, Projected
from schemas.records import Position
from schemas.rows import ClaimRow, DeadLetterRow, GenerationRow, LiveRow, MentionRow, ParentRow, RelationRow, Row, RunRow, SettledRow, StateRow, VectorRow
from sql.checksum import checksum
from sql.claiming import claim_documents
from sql.generations import PgGenerations
from sql.ledger import PgLedger
from sql.memo import PgMemo
from sql.pool import Connection, Pool, close_pool, open_pool
from sql.writers import insert_rows
from tests.contract.ledger_facts import DIMENSION, accepted, chunked, document, embedded, history, projected, removed, transcribed

NOW = datetime(2026, 5, 1, tzinfo=UTC)


def generation(name: str, dimension: int = DIMENSION) -> Generation:
    config = IndexConfig(embed=EmbedConfig(dimension=dimension, state_dimension=0))
    return Generation(name=name, config=config, how={"transcribe": "how"}, topics={})


G1 = generation("g1")


async def decide(pool: Pool, *rows: Row) -> None:
    fact = replace(accepted("decision", 1), id=uuid4())
    await PgLedger(pool, None).claim("control", "always", [Projected(fact, rows)])


@pytest_asyncio.fixture
async def pool(database: str) -> AsyncIterator[Pool]:
    pool = await open_pool(database, size=12, name="test")
    await decide(pool, GenerationRow(G1))
    yield pool
    await close_pool(pool)


@pytest.fixture
def ledger(pool: Pool) -> PgLedger:
    return PgLedger(pool, G1)


async def claim(ledger: PgLedger, *facts: Fact[Any]) -> list[Claimed]:
    """Consecutive facts of one stage in one batch."""
    answers: list[Claimed] = []
    batch: list[tuple[Any, ...]] = [projected(fact) for fact in facts]
    while batch:
        stage, counts, _ = batch[0]
        together = [event for name, _, event in _prefix(batch, stage)]
        answers += await ledger.claim(stage, counts, together)
        batch = batch[len(together) :]
    return answers


def _prefix(batch: Sequence[tuple[Any, ...]], stage: str) -> Sequence[tuple[Any, ...]]:
    end = next((n for n, item in enumerate(batch) if item[0] != stage), len(batch))
    return batch[:end]


def revision(name: str, order: int, words: list[str]) -> list[Fact[Any]]:
    return [accepted(name, order), transcribed(name, order, how="how"), chunked(name, order, words), embedded(name, order, words)]


async def word_counts(pool: Pool) -> dict[str, int]:
    return {row[0]: row[1] for row in await pool.fetch("select lexeme, sum(delta) from lexical_deltas group by 1 having sum(delta) <> 0")}


async def recounted(pool: Pool) -> dict[str, int]:
    rows = await pool.fetch(
        "select lexeme, count(*) from visible v join child_chunks c using (generation, document_id, ord), unnest(tsvector_to_array(c.tsv)) lexeme group by 1"
    )
    return {row[0]: row[1] for row in rows}


async def counts(pool: Pool, *tables: str) -> dict[str, int]:
    return {table: await pool.fetchval(f"select count(*) from {table}") for table in tables}


class TestRevisions:
    async def test_a_new_revision_takes_the_old_ones_rows_out_and_its_texts_into_history(self, pool: Pool, ledger: PgLedger) -> None:
        await claim(ledger, *revision("a", 1, ["river", "delta"]), *revision("a", 2, ["river", "estuary", "mouth"]))
        assert {row["text"] for row in await pool.fetch("select text from child_chunks")} == {"river", "estuary", "mouth"}
        assert {row["text"] for row in await pool.fetch("select text from chunk_history")} == {"river", "delta"}
        assert await counts(pool, "parent_chunks", "chunk_vectors", "revision_texts", "settled") == {
            "parent_chunks": 3, "chunk_vectors": 3, "revision_texts": 1, "settled": 2,
        }  # fmt: skip

    async def test_words_are_counted_for_what_is_visible_and_no_more(self, pool: Pool, ledger: PgLedger) -> None:
        await claim(ledger, *revision("a", 1, ["rivers run", "deltas"]), *revision("b", 1, ["rivers"]), *revision("a", 2, ["estuaries"]))
        assert await word_counts(pool) == await recounted(pool) == {"river": 1, "estuari": 1}
        await claim(ledger, removed("b", 5))
        assert await word_counts(pool) == await recounted(pool) == {"estuari": 1}
        assert await pool.fetchval("select sum(chunks) from corpus_deltas") == 1

    async def test_revisions_of_one_batch_become_visible_one_after_the_other(self, ledger: PgLedger) -> None:
        one, two = revision("a", 1, ["x"]), revision("a", 2, ["y", "z"])
        await claim(ledger, one[0], two[0], one[2], two[2])
        flips = [answer.flip for answer in await claim(ledger, one[3], two[3])]
        assert [(flip.order, flip.previous, flip.chunks) for flip in flips if flip] == [((1, 1), None, 1), ((1, 2), (1, 1), 2)]

    async def test_a_revision_that_comes_too_late_leaves_only_its_texts(self, pool: Pool, ledger: PgLedger) -> None:
        await claim(ledger, *revision("a", 2, ["new"]), *revision("a", 1, ["old"])[2:])
        assert {row["text"] for row in await pool.fetch("select text from chunk_history")} == {"old"}
        assert await counts(pool, "child_chunks", "chunk_vectors") == {"child_chunks": 1, "chunk_vectors": 1}

    async def test_an_unchanged_revision_does_not_count_while_another_is_on_its_way(self, ledger: PgLedger) -> None:
        await claim(ledger, *revision("a", 1, ["x"]))
        other, back = await claim(ledger, accepted("a", 2, "other bytes"), accepted("a", 3))
        assert (other.unchanged, back.unchanged) == (False, False)

    async def test_rows_that_are_written_beside_a_flip_do_not_stay_behind_it(self, pool: Pool, ledger: PgLedger) -> None:
        """A transaction that found its revision still good, and is slow to write, while a later revision becomes visible."""
        found, go_on = asyncio.Event(), asyncio.Event()

        async def slowly(connection: Connection, generation: str, events: Sequence[Projected]) -> None:
            found.set()
            await go_on.wait()
            await insert_rows(connection, generation, events)

        async def late() -> None:
            stage, counts, event = projected(transcribed("a", 1, how="how"))
            async with pool.acquire() as connection, connection.transaction():
                await claim_documents(connection, G1, stage, counts, [event], {}, slowly)

        one, two = revision("a", 1, ["x"]), revision("a", 2, ["y"])
        await claim(ledger, one[0], two[0], *two[1:3])
        writing = asyncio.create_task(late())
        await found.wait()
        flipping = asyncio.create_task(claim(ledger, two[3]))
        await asyncio.wait({flipping}, timeout=0.3)
        go_on.set()
        await asyncio.gather(writing, flipping)
        assert await pool.fetchval("select ord from visible") == [1, 2]
        assert [row["ord"] for row in await pool.fetch("select ord from revision_texts")] == [[1, 2]]

    async def test_claims_are_forgotten_below_an_offset_and_no_others(self, pool: Pool, ledger: PgLedger) -> None:
        facts = [replace(chunked(name, 1, ["x"]), position=Position("chunked", 0, offset)) for name, offset in (("a", 4), ("b", 5), ("c", 6))]
        await claim(ledger, *facts)
        await ledger.settle("embed", [fact.id for fact in facts], [])
        await ledger.prune("embed", "chunked", 0, 5)
        assert {row["log_offset"] for row in await pool.fetch("select log_offset from handled where stage = 'embed'")} == {5, 6}

    async def test_a_withdrawal_that_was_overtaken_still_ends_what_is_older(self, pool: Pool, ledger: PgLedger) -> None:
        await claim(ledger, *revision("a", 1, ["x"]), accepted("a", 3, "fails later"))
        [late] = await claim(ledger, removed("a", 2))
        assert late.claim is Claim.SUPERSEDED
        assert await counts(pool, "visible", "child_chunks") == {"visible": 0, "child_chunks": 0}
        assert await pool.fetchval("select latest from documents") == [1, 3]

    async def test_a_withdrawal_reaches_every_generation(self, pool: Pool, ledger: PgLedger) -> None:
        second = generation("g2", dimension=8)
        await decide(pool, GenerationRow(second))
        facts = revision("a", 1, ["x"])
        await claim(ledger, *facts)
        wide = Projected(
            facts[3], tuple(replace(row, vector=np.zeros(8, np.float16)) if isinstance(row, VectorRow) else row for row in projected(facts[3])[2].rows)
        )
        other = PgLedger(pool, second)
        await claim(other, facts[2])
        await other.claim("index", "visible", [wide])
        assert await counts(pool, "visible", "chunk_vectors") == {"visible": 2, "chunk_vectors": 2}
        await claim(ledger, removed("a", 2))
        assert await counts(pool, "visible", "chunk_vectors", "child_chunks") == {"visible": 0, "chunk_vectors": 0, "child_chunks": 0}
        assert await word_counts(pool) == {}

    async def test_revisions_are_numbered_and_keep_their_place_in_the_log(self, pool: Pool, ledger: PgLedger) -> None:
        await claim(ledger, accepted("a", 3), accepted("a", 7), accepted("a", 5))
        rows = await pool.fetch("select revision, log_offset from document_revisions order by revision")
        assert [tuple(row) for row in rows] == [(1, 3), (2, 7)]
        assert await pool.fetchval("select revision from documents") == 2

    async def test_text_with_nul_is_kept_at_equal_length(self, pool: Pool, ledger: PgLedger) -> None:
        fact = accepted("a", 1, title="a\0b", tags=["t\0"], metadata={"k\0": ["v\0", "\\u0000"]})
        await claim(ledger, fact, chunked("a", 1, ["x\0y"]))
        row = await pool.fetchrow("select title, tags, metadata from documents")
        assert dict(row) == {"title": "a\ufffdb", "tags": ["t\ufffd"], "metadata": {"k\ufffd": ["v\ufffd", "\\u0000"]}}
        assert await pool.fetchval("select text from child_chunks") == "x\ufffdy"


class TestRaces:
    @pytest.mark.parametrize("seed", range(4))
    async def test_any_order_any_batch_any_repetition_and_many_workers_end_in_the_same_tables(self, pool: Pool, ledger: PgLedger, seed: int) -> None:
        mood = random.Random(seed)
        facts, last = history(mood)
        await asyncio.gather(*(worker(PgLedger(pool, G1), facts, random.Random(f"{seed} {n}")) for n in range(6)))
        await claim(ledger, *sorted(facts, key=lambda fact: (projected(fact)[0], fact.data.order)))
        shown = {row["document_id"]: tuple(row["ord"]) for row in await pool.fetch("select document_id, ord from visible")}
        assert shown == last
        assert await word_counts(pool) == await recounted(pool)
        rows = await pool.fetch("select count(*) from child_chunks c left join visible v using (generation, document_id, ord) where v.document_id is null")
        assert rows[0][0] == 0

    async def test_two_workers_claim_an_event_once(self, pool: Pool) -> None:
        stage, counted, event = projected(chunked("a", 1, ["x"]))
        await asyncio.gather(*(PgLedger(pool, G1).claim(stage, counted, [event]) for _ in range(10)))
        assert await counts(pool, "handled", "child_chunks", "settled") == {"handled": 2, "child_chunks": 1, "settled": 1}

    async def test_ten_deliveries_at_the_door_are_one_claim(self, pool: Pool) -> None:
        event = Projected(accepted("a", 1), ())
        answers = await asyncio.gather(*(PgLedger(pool, None).claim("receive", "door", [event]) for _ in range(10)))
        assert {answer.claim for (answer,) in answers} == {Claim.OWED}

    async def test_a_lost_connection_is_database_unavailable_and_trying_again_is_right(self, pool: Pool, ledger: PgLedger, database: str) -> None:
        killer = await asyncpg.connect(database)
        blocker = await asyncpg.connect(database)
        await claim(ledger, accepted("a", 1))
        transaction = blocker.transaction()
        await transaction.start()
        await blocker.execute("select from anabranch.documents for update")
        stuck = asyncio.create_task(claim(ledger, chunked("a", 1, ["x"])))
        while not await killer.fetchval("select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"):
            await asyncio.sleep(0.01)
        await killer.execute("select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'")
        with pytest.raises(DatabaseUnavailable):
            await stuck
        await transaction.rollback()
        await killer.close()
        await blocker.close()
        assert (await claim(ledger, chunked("a", 1, ["x"])))[0].claim is Claim.OWED


async def worker(ledger: PgLedger, facts: Sequence[Fact[Any]], mood: random.Random) -> None:
    """Handles a random three quarters of the facts, in any order and in batches of any size."""
    mine = mood.sample(list(facts), len(facts) * 3 // 4)
    while mine:
        size = mood.randint(1, 12)
        batch, mine = mine[:size], mine[size:]
        for stage in {projected(fact)[0] for fact in batch}:
            await claim(ledger, *(fact for fact in batch if projected(fact)[0] == stage))


class TestRows:
    async def test_every_kind_of_row_lands_in_its_table_and_a_second_time_changes_nothing(self, pool: Pool, ledger: PgLedger) -> None:
        fact = chunked("a", 1, ["x"])
        owner = {"document_id": document("a"), "order": (1, 1), "tenant": "default"}
        chunk, place = content_id("chunk", "a"), {"char_start": 0, "char_end": 1}
        rows: tuple[Row, ...] = (
            VectorRow(chunk, vector=np.array([0.5, -1, 2, 0], np.float16), background_dense=0.25, background_maxsim=None, **owner),
            StateRow(chunk, blob_key="k", offset=3, length=5, **owner),
            MentionRow(content_id("m"), chunk_id=chunk, type="PERSON", key="ada", name="Ada", **place, **owner),
            RelationRow(content_id("r"), chunk_id=chunk, subject_type="PERSON", subject_key="ada", type="knows", object_type="PERSON", object_key="bob",
                        weight=0.5, extractor="rules", **place, **owner),
            ClaimRow(content_id("c"), chunk_id=chunk, subject_type="PERSON", subject_key="ada", property="born", value="1815", **place, **owner),
        )  # fmt: skip
        for number in range(2):
            await ledger.claim("test", "visible", [Projected(replace(fact, id=content_id("try", number)), rows)])
        ada = content_id("entity", "default", "PERSON", "ada")
        assert (await pool.fetchval("select embedding from chunk_vectors")).to_list() == [0.5, -1, 2, 0]
        assert tuple(await pool.fetchrow("select blob_key, blob_offset, blob_length from chunk_states")) == ("k", 3, 5)
        assert tuple(await pool.fetchrow("select entity_id, key, name from entity_mentions")) == (ada, "ada", "Ada")
        assert tuple(await pool.fetchrow("select subject_id, object_id, weight from relations")) == (ada, content_id("entity", "default", "PERSON", "bob"), 0.5)
        assert tuple(await pool.fetchrow("select subject_id, property, value from claims")) == (ada, "born", "1815")

    async def test_a_parent_that_was_cut_in_two_parts_is_one_row_however_many_rows_are_written(self, pool: Pool, ledger: PgLedger) -> None:
        owner = {"document_id": document("a"), "order": (1, 1), "tenant": "default", "ordinal": 0, "section": "", "char_start": 0, "char_end": 1}
        parents = [ParentRow(content_id("p", n), text="t", pages=(1, 2), tokens=1, **owner) for n in range(100)]
        one, two = chunked("a", 1, ["x"], 1, 2), chunked("a", 1, ["y"], 2, 2)
        await ledger.claim("embed", "visible", [Projected(one, tuple(parents))])
        await ledger.claim("embed", "visible", [Projected(two, (*parents[50:], SettledRow(document("a"), (1, 1), "default", "chunks", 2, 2)))])
        assert await counts(pool, "parent_chunks", "settled") == {"parent_chunks": 100, "settled": 1}
        assert await pool.fetchval("select pages from parent_chunks limit 1") == [1, 2]

    async def test_large_batches_hold_what_small_ones_hold(self, pool: Pool, ledger: PgLedger) -> None:
        await claim(ledger, *[fact for number in range(60) for fact in revision(f"doc{number}", 1, [f"w{number}"])])
        small = await checksum(pool)
        await pool.execute(
            "truncate handled, documents, visible, settled, child_chunks, parent_chunks, chunk_vectors, lexical_deltas, corpus_deltas, revision_texts, job_stages"
        )
        every = [revision(f"doc{number}", 1, [f"w{number}"]) for number in range(60)]
        for stage in range(4):
            await claim(ledger, *(facts[stage] for facts in every))
        assert await checksum(pool) == small


class TestGenerations:
    async def test_the_first_is_live_and_the_next_is_not(self, pool: Pool) -> None:
        await decide(pool, GenerationRow(generation("g2")))
        generations = PgGenerations(pool)
        live = await generations.live()
        assert live is not None
        assert (live.name, live.state, live.how) == ("g1", "live", {"transcribe": "how"})
        assert [found.state for found in await generations.undropped()] == ["live", "building"]

    async def test_promoting_lets_the_other_stand_by(self, pool: Pool) -> None:
        await decide(pool, GenerationRow(generation("g2")), LiveRow("g2"))
        assert {found.name: found.state for found in await PgGenerations(pool).undropped()} == {"g1": "standby", "g2": "live"}

    async def test_creating_it_again_changes_nothing(self, pool: Pool) -> None:
        await decide(pool, GenerationRow(generation("g1", dimension=99)))
        found = await PgGenerations(pool).get("g1")
        assert found is not None
        assert found.config.embed.dimension == DIMENSION

    async def test_vectors_of_another_dimension_are_refused(self, ledger: PgLedger) -> None:
        row = VectorRow(uuid4(), document("a"), (1, 1), "default", np.zeros(DIMENSION + 1, np.float16), None, None)
        with pytest.raises(asyncpg.CheckViolationError):
            await ledger.claim("index", "visible", [Projected(chunked("a", 1, ["x"]), (row,))])

    async def test_partitions_carry_every_index_of_their_table(self, pool: Pool) -> None:
        missing = await pool.fetchval(
            "select count(*) from pg_index i join pg_inherits t on t.inhparent = i.indrelid "
            "where not exists (select from pg_inherits x join pg_index c on c.indexrelid = x.inhrelid where x.inhparent = i.indexrelid and c.indrelid = t.inhrelid)"
        )
        assert missing == 0


class TestDecisions:
    @pytest.mark.parametrize("turn", [1, -1])
    async def test_a_question_and_its_answer_make_one_run_in_either_order(self, pool: Pool, turn: int) -> None:
        run = uuid4()
        asked = RunRow(run, "default", "query", {"query": "?"}, NOW, None, None, None, [], {})
        answered = RunRow(run, "default", "", None, None, "g1", {"answer": "!"}, NOW, [{"rank": 1}], {"mean": 0.5})
        for row in (asked, answered)[::turn]:
            await decide(pool, row)
        row = await pool.fetchrow("select kind, request, generation, response, candidates, numbers from runs")
        assert tuple(row) == ("query", {"query": "?"}, "g1", {"answer": "!"}, [{"rank": 1}], {"mean": 0.5})

    async def test_a_second_burial_tells_of_the_last_try(self, pool: Pool) -> None:
        first = DeadLetterRow(uuid4(), "embed", None, "t", "default", None, "chunked", 0, 3, "A", "first", "", None, 1, None, None, None, NOW)
        await decide(pool, first, replace(first, code="B", buried_at=NOW.replace(year=2027)), replace(first, code="C"))
        assert [tuple(row) for row in await pool.fetch("select generation, code from dead_letters")] == [("", "B")]


class TestSettling:
    async def test_a_stage_is_running_until_it_is_settled_and_failed_when_buried(self, pool: Pool, ledger: PgLedger) -> None:
        one, two = chunked("a", 1, ["x"], 1, 2), chunked("a", 1, ["y"], 2, 2)
        await claim(ledger, one, two)
        await claim(ledger, one)
        states = "select part, state, attempts, error->>'code' from job_stages order by part"
        assert [tuple(row) for row in await pool.fetch(states)] == [(1, "running", 2, None), (2, "running", 1, None)]
        buried = EventBuried(stage="embed", event_id=two.id, place=Place(topic="chunked", partition=0, offset=2), code="BAD", detail="no", attempts=5)
        await ledger.settle("embed", [one.id], [buried])
        assert [tuple(row) for row in await pool.fetch(states)] == [(1, "done", 2, None), (2, "failed", 5, "BAD")]
        assert {answer.claim for answer in await claim(ledger, one, two)} == {Claim.DONE}

    async def test_pruned_claims_may_be_made_again_and_the_tables_stay(self, pool: Pool, ledger: PgLedger) -> None:
        facts = revision("a", 1, ["x"])
        await claim(ledger, *facts)
        before = await checksum(pool, everything=True)
        for stage in ("transcribe", "chunk", "embed", "index"):
            await ledger.settle(stage, [fact.id for fact in facts], [])
            await ledger.prune(stage, "accepted", 0, 100)
        assert await pool.fetchval("select count(*) from handled where stage <> 'control'") == 0
        assert {answer.claim for answer in await claim(ledger, *facts)} == {Claim.OWED}
        assert await checksum(pool, everything=True) == before

    async def test_what_is_owed_keeps_its_claim_when_neighbours_are_pruned(self, ledger: PgLedger) -> None:
        fact = chunked("a", 1, ["x"])
        await claim(ledger, fact)
        await ledger.prune("embed", "accepted", 0, 100)
        await ledger.settle("embed", [fact.id], [])
        assert (await claim(ledger, fact))[0].claim is Claim.DONE


class TestMemo:
    async def test_the_first_answer_stays_and_every_part_of_the_key_counts(self, pool: Pool) -> None:
        memo, key = PgMemo(pool), MemoKey("default", document("a"), "e", b"\x00\x01")
        others = [replace(key, tenant="t"), replace(key, document_id=document("b")), replace(key, engine="f"), replace(key, input_sha256=b"\x02")]
        await memo.store({key: b"first"})
        await memo.store({key: b"second", others[0]: b"other"})
        assert await memo.recall([*others, key]) == {key: b"first", others[0]: b"other"}
        assert await memo.recall([]) == {}


async def test_a_document_of_one_part_without_chunks_is_visible(pool: Pool, ledger: PgLedger) -> None:
    answers = await claim(ledger, accepted("a", 1), chunked("a", 1, []), embedded("a", 1, []))
    assert answers[-1].flip is not None
    assert answers[-1].flip.chunks == 0
    assert isinstance(chunked("a", 1, []).data, DocumentChunked)
