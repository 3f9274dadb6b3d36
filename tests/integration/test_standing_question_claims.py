"""Which saved question is asked next, and which web hook is called next."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from schemas.events import AnswerChanged, QuestionDeleted, QuestionSaved
from schemas.standing_questions import StandingQuestionRequest
from schemas.timestamps import utc_now
from sql.database import Pool, close_pool, open_pool
from sql.index.standing_questions import AskedQuestion, PgStandingQuestions, StandingAnswer
from sql.operations.erasure import CitingRecords, PgErasure


@pytest.fixture
async def pool(database: str) -> AsyncIterator[Pool]:
    opened = await open_pool(database, size=2, name="test")
    await PgStandingQuestions(opened).store_cursor("0")
    yield opened
    await close_pool(opened)


async def save(pool: Pool, tenant: str = "a", asked_by: str = "local") -> UUID:
    saved = QuestionSaved(
        question_id=uuid4(),
        tenant=tenant,
        asked_by=asked_by,
        request=StandingQuestionRequest(query="Why?", hook_url="https://example.com"),
        saved_at=utc_now(),
    )
    await PgStandingQuestions(pool).write(saved)
    return saved.question_id


async def claim(tables: PgStandingQuestions, last_tenant: str = "") -> AskedQuestion:
    claimed = await tables.claim(last_tenant)
    assert claimed is not None
    return claimed


async def answer(tables: PgStandingQuestions, asked: AskedQuestion, *, is_change: bool) -> None:
    change = AnswerChanged(
        change_id=uuid4(),
        question_id=asked.question_id,
        tenant=asked.owner.tenant,
        changed_at=utc_now() - timedelta(minutes=2),
        previous_run_id=uuid4(),
        run_id=uuid4(),
        changes=["answer"],
        causes=["document"],
        documents=[],
    )
    answered = StandingAnswer(change.run_id, utc_now(), [], "g1", "en", None, None)
    await tables.record_answer(asked, answered, change if is_change else None)
    assert await tables.claim_unpublished() == ([change] if is_change else [])
    # Another process would publish it again.
    assert await tables.claim_unpublished() == []
    await tables.mark_published(change.change_id)


async def test_tenants_take_turns_with_questions_and_deliveries(pool: Pool) -> None:
    tables = PgStandingQuestions(pool)
    for tenant in "aaab":
        await save(pool, tenant)
    asked = [await claim(tables)]
    while len(asked) < 4:
        asked.append(await claim(tables, asked[-1].owner.tenant))
    assert [one.owner.tenant for one in asked] == ["a", "b", "a", "a"]
    for one in asked:
        await answer(tables, one, is_change=True)
    # Many at once, of as many tenants as possible, and none by two processes.
    first = await tables.claim_deliveries(2)
    assert {change.tenant for change, _ in first} == {"a", "b"}
    claims = [first, *await asyncio.gather(*(tables.claim_deliveries(2) for _ in range(4)))]
    claimed = [change.change_id for found in claims for change, _ in found]
    assert len(claimed) == len(set(claimed)) == 4


async def test_deleted_question_and_one_of_an_invalid_key_are_not_claimed(pool: Pool) -> None:
    tables = PgStandingQuestions(pool)
    deleted = await save(pool)
    await tables.write(QuestionDeleted(question_id=deleted, tenant="a"))
    # Matched by its vector, which another process still has.
    await pool.execute("update standing_questions set due_at = now()")
    owned = await save(pool, asked_by="key:revoked")
    assert await tables.claim("") is None
    # The change was found while the key was valid; its owner must not receive the text now.
    await pool.execute("update standing_questions set asked_by = 'local' where id = $1", owned)
    await answer(tables, await claim(tables), is_change=True)
    await pool.execute(
        "update standing_questions set asked_by = 'key:revoked' where id = $1", owned
    )
    assert await tables.claim_deliveries(9) == []


async def test_answer_of_a_replaced_generation_is_asked_again(pool: Pool) -> None:
    tables = PgStandingQuestions(pool)
    await save(pool)
    await pool.execute(
        "insert into generations (name, config, how, topics, state) "
        "values ('g2', $1, $1, $1, 'live')",
        {},
    )
    await pool.execute("insert into live_generation (name, decided_at) values ('g2', 0)")
    # Its vector is of g1: no new text of g2 would be compared with it.
    await answer(tables, await claim(tables), is_change=False)
    run_id = await pool.fetchval("select run_id from standing_questions")
    await add_run(pool, run_id)
    assert (await claim(tables)).previous_run_id is None


async def add_run(pool: Pool, run_id: UUID) -> None:
    query = "insert into runs (id, tenant, kind, answered_at) values ($1, 'a', 'query', now())"
    await pool.execute(query, run_id)


async def test_question_waits_for_its_last_answer_and_follows_its_erasure(pool: Pool) -> None:
    tables = PgStandingQuestions(pool)
    question = await save(pool)
    await answer(tables, await claim(tables), is_change=False)
    await pool.execute("update standing_questions set due_at = now()")
    # Else nothing to compare with would be found, and the change never reported.
    assert await tables.claim("") is None
    run_id = await pool.fetchval("select run_id from standing_questions where id = $1", question)
    await add_run(pool, run_id)
    asked = await claim(tables)
    assert asked.previous_run_id == run_id
    await answer(tables, asked, is_change=False)
    run_id = await pool.fetchval("select run_id from standing_questions where id = $1", question)
    await add_run(pool, run_id)
    assert await tables.claim("") is None
    # The answer is gone: the next one is the first to compare with.
    await PgErasure(pool).erase_citing_records(UUID(int=1), CitingRecords((run_id,), ()))
    assert (await claim(tables)).previous_run_id == run_id
