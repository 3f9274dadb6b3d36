"""Check the Postgres ledger beyond the contract that every ledger keeps."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import numpy as np
import pytest
import pytest_asyncio

from schemas.errors import DatabaseUnavailable
from schemas.events import DocumentChunked, Event, EventDeadLettered
from schemas.events.dead_letters import LogPosition
from schemas.ids import content_id
from schemas.ports.ledger import ClaimStatus, MemoKey, ProjectedEvent
from schemas.ports.stage_ports import ANY_SOURCE, Admission, LatestRevision
from schemas.rows import (
    ClaimRow,
    EventRow,
    MentionRow,
    ParentRow,
    PartCompletedRow,
    RelationRow,
    Row,
    RunRow,
    TokenStateRow,
    VectorRow,
)
from schemas.topics import Position
from sql.catalog.revisions import PgDocumentOwners, PgRevisions
from sql.database import Connection, Pool, close_pool, open_pool
from sql.inbox.claim_transaction import claim_documents
from sql.inbox.ledger import PgEngineResultCache, PgLedger
from sql.index.derived_tables import insert_rows
from sql.index.generations import PgGenerations
from sql.operations.integrity import compute_checksum
from tests.support.eventually import eventually
from tests.support.generation_copies import apply_control_rows, created_row
from tests.support.ledger_events import (
    DIMENSION,
    G1,
    claim_events,
    generate_history,
    make_accepted,
    make_chunked,
    make_embedded,
    make_generation,
    make_removed,
    make_revision_events,
    make_sample_document_id,
    make_transcribed,
    project_event,
)
from tests.support.repetitions import repeat

NOW = datetime(2026, 5, 1, tzinfo=UTC)


@pytest_asyncio.fixture
async def pool(database: str) -> AsyncIterator[Pool]:
    pool = await open_pool(database, size=12, name="test")
    await apply_control_rows(pool, created_row(G1))
    yield pool
    await close_pool(pool)


@pytest.fixture
def ledger(pool: Pool) -> PgLedger:
    return PgLedger(pool, G1)


async def fetch_word_counts(pool: Pool) -> dict[str, int]:
    return {
        row[0]: row[1]
        for row in await pool.fetch(
            "select lexeme, sum(delta) from lexical_deltas group by 1 having sum(delta) <> 0"
        )
    }


async def recount_words(pool: Pool) -> dict[str, int]:
    rows = await pool.fetch(
        "select lexeme, count(*) from visible v "
        "join child_chunks c using (generation, document_id, ord), "
        "unnest(tsvector_to_array(c.tsv)) lexeme group by 1"
    )
    return {row[0]: row[1] for row in rows}


async def count_rows(pool: Pool, *tables: str) -> dict[str, int]:
    return {table: await pool.fetchval(f"select count(*) from {table}") for table in tables}


class TestRevisions:
    async def test_new_revision_replaces_rows_and_archives_texts(
        self, pool: Pool, ledger: PgLedger
    ) -> None:
        await claim_events(
            ledger,
            *make_revision_events("a", 1, ["river", "delta"]),
            *make_revision_events("a", 2, ["river", "estuary", "mouth"]),
        )
        assert {row["text"] for row in await pool.fetch("select text from child_chunks")} == {
            "river",
            "estuary",
            "mouth",
        }
        assert {row["text"] for row in await pool.fetch("select text from chunk_history")} == {
            "river",
            "delta",
        }
        assert await count_rows(
            pool, "parent_chunks", "chunk_vectors", "revision_texts", "revision_parts"
        ) == {"parent_chunks": 3, "chunk_vectors": 3, "revision_texts": 1, "revision_parts": 2}

    async def test_word_counts_cover_only_visible_revisions(
        self, pool: Pool, ledger: PgLedger
    ) -> None:
        await claim_events(
            ledger,
            *make_revision_events("a", 1, ["rivers run", "deltas"]),
            *make_revision_events("b", 1, ["rivers"]),
            *make_revision_events("a", 2, ["estuaries"]),
        )
        assert (
            await fetch_word_counts(pool) == await recount_words(pool) == {"river": 1, "estuari": 1}
        )
        await claim_events(ledger, make_removed("b", 5))
        assert await fetch_word_counts(pool) == await recount_words(pool) == {"estuari": 1}
        assert await pool.fetchval("select sum(chunks) from corpus_deltas") == 1

    async def test_revisions_of_one_batch_are_activated_in_order(self, ledger: PgLedger) -> None:
        one, two = make_revision_events("a", 1, ["x"]), make_revision_events("a", 2, ["y", "z"])
        await claim_events(ledger, one[0], two[0], one[2], two[2])
        flips = [answer.visibility_change for answer in await claim_events(ledger, one[3], two[3])]
        assert [(flip.order, flip.previous, flip.n_chunks) for flip in flips if flip] == [
            ((1, 1), None, 1),
            ((1, 2), (1, 1), 2),
        ]

    async def test_late_revision_stores_only_its_texts(self, pool: Pool, ledger: PgLedger) -> None:
        await claim_events(
            ledger,
            *make_revision_events("a", 2, ["new"]),
            *make_revision_events("a", 1, ["old"])[2:],
        )
        assert {row["text"] for row in await pool.fetch("select text from chunk_history")} == {
            "old"
        }
        assert await count_rows(pool, "child_chunks", "chunk_vectors") == {
            "child_chunks": 1,
            "chunk_vectors": 1,
        }

    async def test_revision_is_not_unchanged_while_another_is_pending(
        self, ledger: PgLedger
    ) -> None:
        await claim_events(ledger, *make_revision_events("a", 1, ["x"]))
        other, back = await claim_events(
            ledger, make_accepted("a", 2, "other bytes"), make_accepted("a", 3)
        )
        assert (other.is_unchanged, back.is_unchanged) == (False, False)

    async def test_rows_written_during_activation_are_not_orphaned(
        self, pool: Pool, ledger: PgLedger
    ) -> None:
        """A slow writer holds a revision while a later one becomes visible."""
        found, go_on = asyncio.Event(), asyncio.Event()

        async def slowly(
            connection: Connection, generation: str, events: Sequence[ProjectedEvent]
        ) -> None:
            found.set()
            await go_on.wait()
            await insert_rows(connection, generation, events)

        async def late() -> None:
            stage, counts, event = project_event(make_transcribed("a", 1, fingerprint="how"))
            async with pool.acquire() as connection, connection.transaction():
                await claim_documents(connection, G1, stage, counts, [event], {}, slowly)

        one, two = make_revision_events("a", 1, ["x"]), make_revision_events("a", 2, ["y"])
        await claim_events(ledger, one[0], two[0], *two[1:3])
        writing = asyncio.create_task(late())
        await found.wait()
        flipping = asyncio.create_task(claim_events(ledger, two[3]))
        await asyncio.wait({flipping}, timeout=0.3)
        go_on.set()
        await asyncio.gather(writing, flipping)
        assert await pool.fetchval("select ord from visible") == [1, 2]
        assert [row["ord"] for row in await pool.fetch("select ord from revision_texts")] == [
            [1, 2]
        ]

    async def test_claims_are_pruned_only_below_the_offset(
        self, pool: Pool, ledger: PgLedger
    ) -> None:
        facts = [
            replace(make_chunked(name, 1, ["x"]), position=Position("chunked", 0, offset))
            for name, offset in (("a", 4), ("b", 5), ("c", 6))
        ]
        await claim_events(ledger, *facts)
        await ledger.complete("embed", [fact.id for fact in facts], [])
        await ledger.prune("embed", "chunked", 0, 5)
        assert {
            row["log_offset"]
            for row in await pool.fetch("select log_offset from inbox where stage = 'embed'")
        } == {5, 6}

    async def test_superseded_withdrawal_still_removes_older_revisions(
        self, pool: Pool, ledger: PgLedger
    ) -> None:
        await claim_events(
            ledger, *make_revision_events("a", 1, ["x"]), make_accepted("a", 3, "fails later")
        )
        [late] = await claim_events(ledger, make_removed("a", 2))
        assert late.status is ClaimStatus.SUPERSEDED
        assert await count_rows(pool, "visible", "child_chunks") == {
            "visible": 0,
            "child_chunks": 0,
        }
        assert await pool.fetchval("select latest from documents") == [1, 3]

    async def test_withdrawal_applies_to_every_generation(
        self, pool: Pool, ledger: PgLedger
    ) -> None:
        second = make_generation("g2", dimension=8)
        await apply_control_rows(pool, created_row(second))
        facts = make_revision_events("a", 1, ["x"])
        await claim_events(ledger, *facts)
        wide = ProjectedEvent(
            facts[3],
            tuple(
                replace(row, vector=np.zeros(8, np.float16)) if isinstance(row, VectorRow) else row
                for row in project_event(facts[3])[2].rows
            ),
        )
        other = PgLedger(pool, second)
        await claim_events(other, facts[2])
        await other.claim("index", "visible", [wide])
        assert await count_rows(pool, "visible", "chunk_vectors") == {
            "visible": 2,
            "chunk_vectors": 2,
        }
        await claim_events(ledger, make_removed("a", 2))
        assert await count_rows(pool, "visible", "chunk_vectors", "child_chunks") == {
            "visible": 0,
            "chunk_vectors": 0,
            "child_chunks": 0,
        }
        assert await fetch_word_counts(pool) == {}

    async def test_revisions_have_numbers_and_log_positions(
        self, pool: Pool, ledger: PgLedger
    ) -> None:
        await claim_events(
            ledger, make_accepted("a", 3), make_accepted("a", 7), make_accepted("a", 5)
        )
        rows = await pool.fetch(
            "select revision, log_offset from document_revisions order by revision"
        )
        assert [tuple(row) for row in rows] == [(1, 3), (2, 7)]
        assert await pool.fetchval("select revision from documents") == 2

    async def test_text_with_nul_keeps_its_length(self, pool: Pool, ledger: PgLedger) -> None:
        fact = make_accepted(
            "a", 1, title="a\0b", tags=["t\0"], metadata={"k\0": ["v\0", "\\u0000"]}
        )
        await claim_events(ledger, fact, make_chunked("a", 1, ["x\0y"]))
        row = await pool.fetchrow("select title, tags, metadata from documents")
        assert dict(row) == {
            "title": "a\ufffdb",
            "tags": ["t\ufffd"],
            "metadata": {"k\ufffd": ["v\ufffd", "\\u0000"]},
        }
        assert await pool.fetchval("select text from child_chunks") == "x\ufffdy"


class TestConcurrency:
    @pytest.mark.parametrize("seed", repeat(4))
    async def test_tables_do_not_depend_on_order_batching_or_redelivery(
        self, pool: Pool, ledger: PgLedger, seed: int
    ) -> None:
        mood = random.Random(seed)
        facts, last = generate_history(mood)
        await asyncio.gather(
            *(
                claim_in_random_batches(PgLedger(pool, G1), facts, random.Random(f"{seed} {n}"))
                for n in range(6)
            )
        )
        await claim_events(
            ledger, *sorted(facts, key=lambda fact: (project_event(fact)[0], fact.data.order))
        )
        shown = {
            row["document_id"]: tuple(row["ord"])
            for row in await pool.fetch("select document_id, ord from visible")
        }
        assert shown == last
        assert await fetch_word_counts(pool) == await recount_words(pool)
        rows = await pool.fetch(
            "select count(*) from child_chunks c left "
            "join visible v using (generation, document_id, ord) where v.document_id is null"
        )
        assert rows[0][0] == 0

    async def test_two_workers_claim_an_event_once(self, pool: Pool) -> None:
        stage, counted, event = project_event(make_chunked("a", 1, ["x"]))
        await asyncio.gather(
            *(PgLedger(pool, G1).claim(stage, counted, [event]) for _ in range(10))
        )
        assert await count_rows(pool, "inbox", "child_chunks", "revision_parts") == {
            "inbox": 2,
            "child_chunks": 1,
            "revision_parts": 1,
        }

    async def test_ten_deliveries_at_ingress_are_one_claim(self, pool: Pool) -> None:
        event = ProjectedEvent(make_accepted("a", 1), ())
        answers = await asyncio.gather(
            *(PgLedger(pool, None).claim("receive", "once_per_id", [event]) for _ in range(10))
        )
        assert {answer.status for (answer,) in answers} == {ClaimStatus.PENDING}

    async def test_lost_connection_is_retryable_database_unavailable(
        self, pool: Pool, ledger: PgLedger, database: str
    ) -> None:
        killer = await asyncpg.connect(database)
        blocker = await asyncpg.connect(database)
        await claim_events(ledger, make_accepted("a", 1))
        transaction = blocker.transaction()
        await transaction.start()
        await blocker.execute("select from anabranch.documents for update")
        stuck = asyncio.create_task(claim_events(ledger, make_chunked("a", 1, ["x"])))
        await eventually(
            lambda: killer.fetchval(
                "select count(*) from pg_stat_activity where datname = current_database() "
                "and wait_event_type = 'Lock'"
            )
        )
        await killer.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where datname = current_database() and wait_event_type = 'Lock'"
        )
        with pytest.raises(DatabaseUnavailable):
            await stuck
        await transaction.rollback()
        await killer.close()
        await blocker.close()
        assert (await claim_events(ledger, make_chunked("a", 1, ["x"])))[
            0
        ].status is ClaimStatus.PENDING


async def claim_in_random_batches(
    ledger: PgLedger, facts: Sequence[Event[Any]], mood: random.Random
) -> None:
    """Claim a random three quarters of the events, in any order and in random batches."""
    mine = mood.sample(list(facts), len(facts) * 3 // 4)
    while mine:
        size = mood.randint(1, 12)
        batch, mine = mine[:size], mine[size:]
        for stage in {project_event(fact)[0] for fact in batch}:
            await claim_events(ledger, *(fact for fact in batch if project_event(fact)[0] == stage))


class TestRows:
    async def test_every_row_type_is_written_once(self, pool: Pool, ledger: PgLedger) -> None:
        fact = make_chunked("a", 1, ["x"])
        owner = {"document_id": make_sample_document_id("a"), "order": (1, 1), "tenant": "default"}
        chunk, place = content_id("chunk", "a"), {"char_start": 0, "char_end": 1}
        rows: tuple[Row, ...] = (
            VectorRow(
                chunk_id=chunk,
                vector=np.array([0.5, -1, 2, 0], np.float16),
                background_dense=0.25,
                background_maxsim=None,
                **owner,
            ),
            TokenStateRow(chunk_id=chunk, blob_key="k", offset=3, length=5, **owner),
            MentionRow(
                id=content_id("m"),
                chunk_id=chunk,
                type="PERSON",
                key="ada",
                name="Ada",
                **place,
                **owner,
            ),
            RelationRow(
                id=content_id("r"),
                chunk_id=chunk,
                subject_type="PERSON",
                subject_key="ada",
                type="knows",
                object_type="PERSON",
                object_key="bob",
                weight=0.5,
                extractor="rules",
                **place,
                **owner,
            ),
            ClaimRow(
                id=content_id("c"),
                chunk_id=chunk,
                subject_type="PERSON",
                subject_key="ada",
                property="born",
                value="1815",
                **place,
                **owner,
            ),
        )
        for number in range(2):
            await ledger.claim(
                "test",
                "visible",
                [ProjectedEvent(replace(fact, id=content_id("try", number)), rows)],
            )
        ada = content_id("entity", "default", "PERSON", "ada")
        assert (await pool.fetchval("select embedding from chunk_vectors")).to_list() == [
            0.5,
            -1,
            2,
            0,
        ]
        assert tuple(
            await pool.fetchrow("select blob_key, blob_offset, blob_length from chunk_states")
        ) == ("k", 3, 5)
        assert tuple(await pool.fetchrow("select entity_id, key, name from entity_mentions")) == (
            ada,
            "ada",
            "Ada",
        )
        assert tuple(
            await pool.fetchrow("select subject_id, object_id, weight from relations")
        ) == (ada, content_id("entity", "default", "PERSON", "bob"), 0.5)
        assert tuple(await pool.fetchrow("select subject_id, property, value from claims")) == (
            ada,
            "born",
            "1815",
        )

    async def test_parent_split_in_two_parts_is_one_row(self, pool: Pool, ledger: PgLedger) -> None:
        owner = {
            "document_id": make_sample_document_id("a"),
            "order": (1, 1),
            "tenant": "default",
            "ordinal": 0,
            "section": "",
            "char_start": 0,
            "char_end": 1,
        }
        parents = [
            ParentRow(id=content_id("p", n), text="t", pages=(1, 2), tokens=1, **owner)
            for n in range(100)
        ]
        one, two = make_chunked("a", 1, ["x"], 1, 2), make_chunked("a", 1, ["y"], 2, 2)
        await ledger.claim("embed", "visible", [ProjectedEvent(one, tuple(parents))])
        await ledger.claim(
            "embed",
            "visible",
            [
                ProjectedEvent(
                    two,
                    (
                        *parents[50:],
                        PartCompletedRow(
                            make_sample_document_id("a"), (1, 1), "default", "chunks", 2, 2
                        ),
                    ),
                )
            ],
        )
        assert await count_rows(pool, "parent_chunks", "revision_parts") == {
            "parent_chunks": 100,
            "revision_parts": 1,
        }
        assert await pool.fetchval("select pages from parent_chunks limit 1") == [1, 2]

    async def test_large_batches_write_the_same_rows_as_small(
        self, pool: Pool, ledger: PgLedger
    ) -> None:
        await claim_events(
            ledger,
            *[
                fact
                for number in range(60)
                for fact in make_revision_events(f"doc{number}", 1, [f"w{number}"])
            ],
        )
        small = await compute_checksum(pool)
        await pool.execute(
            "truncate inbox, documents, visible, revision_parts, child_chunks, parent_chunks, "
            "chunk_vectors, lexical_deltas, corpus_deltas, revision_texts, job_stages"
        )
        every = [make_revision_events(f"doc{number}", 1, [f"w{number}"]) for number in range(60)]
        for stage in range(4):
            await claim_events(ledger, *(facts[stage] for facts in every))
        assert await compute_checksum(pool) == small


class TestGenerations:
    async def test_first_generation_is_live_and_second_is_not(self, pool: Pool) -> None:
        await apply_control_rows(pool, created_row(make_generation("g2")))
        generations = PgGenerations(pool)
        live = await generations.fetch_live()
        assert live is not None
        assert (live.name, live.state, live.how) == ("g1", "live", {"transcribe": "how"})
        assert [found.state for found in await generations.fetch_undropped()] == [
            "live",
            "building",
        ]

    async def test_creating_a_generation_is_idempotent(self, pool: Pool) -> None:
        await apply_control_rows(pool, created_row(make_generation("g1", dimension=99)))
        found = await PgGenerations(pool).fetch("g1")
        assert found is not None
        assert found.config.embed.dimension == DIMENSION

    async def test_vectors_of_another_dimension_are_rejected(self, ledger: PgLedger) -> None:
        row = VectorRow(
            make_sample_document_id("a"),
            (1, 1),
            "default",
            uuid4(),
            np.zeros(DIMENSION + 1, np.float16),
            None,
            None,
        )
        with pytest.raises(asyncpg.CheckViolationError):
            await ledger.claim(
                "index", "visible", [ProjectedEvent(make_chunked("a", 1, ["x"]), (row,))]
            )

    async def test_partitions_have_every_index_of_their_table(self, pool: Pool) -> None:
        missing = await pool.fetchval(
            "select count(*) from pg_index i join pg_inherits t on t.inhparent = i.indrelid "
            "where not exists (select from pg_inherits x "
            "join pg_index c on c.indexrelid = x.inhrelid "
            "where x.inhparent = i.indexrelid and c.indrelid = t.inhrelid)"
        )
        assert missing == 0


class TestDecisions:
    @pytest.mark.parametrize("turn", [1, -1])
    async def test_question_and_answer_make_one_run_in_any_order(
        self, pool: Pool, turn: int
    ) -> None:
        run = uuid4()
        run_row = RunRow(run, "default", "query", {"query": "?"}, NOW)
        answered = RunRow(
            run, "default", "", None, None, "g1", {"answer": "!"}, NOW, [{"rank": 1}], {"mean": 0.5}
        )
        for row in (run_row, answered)[::turn]:
            await apply_control_rows(pool, row)
        row = await pool.fetchrow(
            "select kind, request, generation, response, candidates, numbers from runs"
        )
        assert tuple(row) == (
            "query",
            {"query": "?"},
            "g1",
            {"answer": "!"},
            [{"rank": 1}],
            {"mean": 0.5},
        )

    async def test_second_dead_letter_records_the_last_attempt(self, pool: Pool) -> None:
        first = EventDeadLettered(
            stage="embed",
            event_id=uuid4(),
            original_type="t",
            tenant="default",
            position=LogPosition(topic="chunked", partition=0, offset=3),
            code="A",
            detail="first",
        )
        await apply_control_rows(
            pool,
            EventRow(first, time=NOW),
            EventRow(first.model_copy(update={"code": "B"}), time=NOW.replace(year=2027)),
            EventRow(first.model_copy(update={"code": "C"}), time=NOW),
        )
        assert [
            tuple(row) for row in await pool.fetch("select generation, code from dead_letters")
        ] == [("", "B")]


class TestSettling:
    async def test_stage_runs_until_settled_and_fails_when_dead_lettered(
        self, pool: Pool, ledger: PgLedger
    ) -> None:
        one, two = make_chunked("a", 1, ["x"], 1, 2), make_chunked("a", 1, ["y"], 2, 2)
        await claim_events(ledger, one, two)
        await claim_events(ledger, one)
        states = "select part, state, attempts, error->>'code' from job_stages order by part"
        assert [tuple(row) for row in await pool.fetch(states)] == [
            (1, "running", 2, None),
            (2, "running", 1, None),
        ]
        dead_letter = EventDeadLettered(
            stage="embed",
            event_id=two.id,
            position=LogPosition(topic="chunked", partition=0, offset=2),
            code="BAD",
            detail="no",
            attempts=5,
        )
        await ledger.complete("embed", [one.id], [dead_letter])
        assert [tuple(row) for row in await pool.fetch(states)] == [
            (1, "done", 2, None),
            (2, "failed", 5, "BAD"),
        ]
        assert {answer.status for answer in await claim_events(ledger, one, two)} == {
            ClaimStatus.DONE
        }

    async def test_pruned_claims_can_be_repeated_without_changing_tables(
        self, pool: Pool, ledger: PgLedger
    ) -> None:
        facts = make_revision_events("a", 1, ["x"])
        await claim_events(ledger, *facts)
        before = await compute_checksum(pool, include_history=True)
        for stage in ("transcribe", "chunk", "embed", "index"):
            await ledger.complete(stage, [fact.id for fact in facts], [])
            await ledger.prune(stage, "accepted", 0, 100)
        assert await pool.fetchval("select count(*) from inbox where stage <> 'control'") == 0
        assert {answer.status for answer in await claim_events(ledger, *facts)} == {
            ClaimStatus.PENDING
        }
        assert await compute_checksum(pool, include_history=True) == before

    async def test_pending_events_keep_their_claims_when_pruned(self, ledger: PgLedger) -> None:
        fact = make_chunked("a", 1, ["x"])
        await claim_events(ledger, fact)
        await ledger.prune("embed", "accepted", 0, 100)
        await ledger.complete("embed", [fact.id], [])
        assert (await claim_events(ledger, fact))[0].status is ClaimStatus.DONE


class TestMemo:
    async def test_first_result_is_kept_per_full_key(self, pool: Pool) -> None:
        memo, key = (
            PgEngineResultCache(pool),
            MemoKey("default", make_sample_document_id("a"), "e", b"\x00\x01"),
        )
        others = [
            replace(key, tenant="t"),
            replace(key, document_id=make_sample_document_id("b")),
            replace(key, engine="f"),
            replace(key, input_sha256=b"\x02"),
        ]
        await memo.store({key: b"first"})
        await memo.store({key: b"second", others[0]: b"other"})
        assert await memo.fetch([*others, key]) == {key: b"first", others[0]: b"other"}
        assert await memo.fetch([]) == {}

    async def test_concurrent_calls_get_their_own_results(self, pool: Pool) -> None:
        memo = PgEngineResultCache(pool)
        keys = [
            MemoKey(tenant, make_sample_document_id(name), "e", b"\x00")
            for tenant in ("default", "t")
            for name in "abc"
        ]
        await asyncio.gather(
            *(memo.store({key: str(n).encode()}) for n, key in enumerate(keys)),
            memo.store({keys[0]: b"later"}),
        )
        found = await asyncio.gather(*(memo.fetch([key]) for key in keys))
        assert found == [{key: str(n).encode()} for n, key in enumerate(keys)]


def make_admission(
    source: str | None, *allowed: str, document: str = "a", tenant: str = "default", number: int = 1
) -> Admission:
    document_id = make_sample_document_id(document)
    event_id = UUID(int=number)
    return Admission(tenant, document_id, event_id, [1, number], True, source, allowed)


class TestOwners:
    async def test_first_of_concurrent_claims_owns_document(self, pool: Pool) -> None:
        owners = PgDocumentOwners(pool)
        a, b = map(make_sample_document_id, "ab")
        claims = [
            make_admission("x", "x"),
            make_admission("y", "y"),
            make_admission("y", "y", document="b"),
            make_admission("z", "z", tenant="t"),
        ]
        assert await asyncio.gather(*map(owners.admit, claims)) == ["x", "x", "y", "z"]
        assert await asyncio.gather(
            owners.fetch_owner("default", a), owners.fetch_owner("t", a), owners.fetch_owner("t", b)
        ) == ["x", "z", None]

    async def test_allowed_sources_change_owner(self, pool: Pool) -> None:
        owners = PgDocumentOwners(pool)
        assert await owners.admit(make_admission("x", "x")) == "x"
        assert await owners.admit(make_admission("y", "y", "{z}")) == "x"
        assert await owners.admit(make_admission('y"', 'y"', "x")) == 'y"'
        assert await owners.admit(make_admission("z", ANY_SOURCE)) == "z"
        assert await owners.admit(make_admission(None)) == "z"

    async def test_latest_revision_is_the_newest_admitted_one(self, pool: Pool) -> None:
        owners, revisions = PgDocumentOwners(pool), PgRevisions(pool)
        document = make_sample_document_id("a")
        assert await revisions.fetch_latest("default", document) is None
        await owners.admit(make_admission(None, number=5))
        # A refused event and an older one change nothing.
        await owners.admit(make_admission("x", "x", number=2))
        await owners.admit(make_admission("y", "y", number=9))
        latest = await revisions.fetch_latest("default", document)
        assert latest == LatestRevision(True, None, (1, 5))


async def test_document_without_chunks_becomes_visible(pool: Pool, ledger: PgLedger) -> None:
    answers = await claim_events(
        ledger, make_accepted("a", 1), make_chunked("a", 1, []), make_embedded("a", 1, [])
    )
    assert answers[-1].visibility_change is not None
    assert answers[-1].visibility_change.n_chunks == 0
    assert isinstance(make_chunked("a", 1, []).data, DocumentChunked)


async def test_rows_change_the_index_only_once_their_revision_is_visible(
    pool: Pool, ledger: PgLedger
) -> None:
    async def count_changes() -> int:
        return int(
            await pool.fetchval("select count(*) from index_changes where generation = 'g1'")
        )

    await claim_events(ledger, make_accepted("a", 1), make_chunked("a", 1, ["one"]))
    assert await count_changes() == 0
    await claim_events(ledger, make_embedded("a", 1, ["one"]))
    assert await count_changes() == 1
