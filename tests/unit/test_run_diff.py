from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from retrieval.runs.recorded_run import RecordedRun, parse_run
from retrieval.runs.run_diff import DiffContext, compare_runs
from schemas.answer_profiles import AnswerProfile
from schemas.errors import NotFound
from schemas.generations import Generation, IndexConfig
from schemas.ids import make_document_id
from schemas.profiles import Profile
from schemas.questions import QueryRequest
from schemas.run_records import CurrentDocument, RunDiff
from tests.support.api_client import LOCAL_CALLER
from tests.unit.retrieval_harness import LEASE, PUMP, STAFF, VACATION_PT, RetrievalHarness
from tests.unit.run_rows import COST_QUESTION, make_run_row

NO_CONTEXT = DiffContext({}, {})


def make_corpus(**texts: str) -> RetrievalHarness:
    built = RetrievalHarness()
    for name, text in texts.items():
        built.add(name, text, title=name.title())
    return built


async def query_and_record(built: RetrievalHarness, run: int = 1, **options: Any) -> RecordedRun:
    built.published_events.clear()
    await built.make_retriever().query(
        LOCAL_CALLER, QueryRequest(query=COST_QUESTION, **options), UUID(int=run)
    )
    return parse_run(make_run_row(built))


def list_reasons(diff: RunDiff) -> set[tuple[str, str]]:
    return {(reason.cause, reason.detail) for reason in diff.reasons}


async def test_run_without_contents_was_erased_only_if_it_was_answered() -> None:
    built = make_corpus(pump=PUMP)
    await query_and_record(built)
    empty = make_run_row(built) | {"request": None, "response": None, "run_record": None}
    with pytest.raises(NotFound) as erased:
        parse_run(empty)
    with pytest.raises(NotFound) as started:
        parse_run(empty | {"answered_at": None})
    assert (erased.value.code, started.value.code) == ("RUN_ERASED", "RUN_INCOMPLETE")


async def test_identical_runs_have_no_differences() -> None:
    built = make_corpus(pump=PUMP, lease=LEASE, staff=STAFF)
    diff = compare_runs(await query_and_record(built), await query_and_record(built, 2), NO_CONTEXT)
    assert diff.same and not diff.reasons and diff.then.run_id != diff.now.run_id


async def test_withdrawn_document_is_a_reason_for_different_answer() -> None:
    then, now = (
        await query_and_record(make_corpus(pump=PUMP, lease=LEASE, staff=STAFF)),
        await query_and_record(make_corpus(lease=LEASE, staff=STAFF), 2),
    )
    diff = compare_runs(
        then,
        now,
        DiffContext(
            {},
            {
                make_document_id("default", "", "pump"): CurrentDocument(
                    visible_revision=None, state="withdrawn"
                )
            },
        ),
    )
    assert diff.answer_changed and diff.citations_changed and not diff.same
    assert [(one.external_id, one.rank_now) for one in diff.removed] == [("pump", None)]
    assert ("document", "Pump is no longer searchable (withdrawn)") in list_reasons(diff)


async def test_new_document_is_a_reason_for_moved_ranks() -> None:
    then, now = (
        await query_and_record(make_corpus(lease=LEASE, staff=STAFF)),
        await query_and_record(make_corpus(pump=PUMP, lease=LEASE, staff=STAFF), 2),
    )
    diff = compare_runs(then, now, NO_CONTEXT)
    assert [(one.external_id, one.rank_then, one.rank_now) for one in diff.added] == [
        ("pump", None, 1)
    ]
    assert ("document", "Pump was not retrieved then: it is new or has changed") in list_reasons(
        diff
    )


async def test_profile_change_is_first_reason_with_changed_settings() -> None:
    built = make_corpus(pump=PUMP, lease=LEASE, staff=STAFF, ferias=VACATION_PT)
    built.profiles = [Profile(name="narrow", answer=AnswerProfile(trim=1.0))]
    diff = compare_runs(
        await query_and_record(built),
        await query_and_record(built, 2, profile="narrow"),
        NO_CONTEXT,
    )
    assert diff.profile_changes["answer.trim"] == (0.6, 1.0)
    assert diff.request_changes == {"profile": ("default", "narrow")}
    assert [reason.cause for reason in diff.reasons][:2] == ["request", "profile"]


async def test_only_generations_with_different_stages_are_a_reason() -> None:
    built = make_corpus(pump=PUMP, lease=LEASE)
    then = await query_and_record(built)
    for fingerprints, expected in (
        ({"embed": "b"}, {("generation", "generation g2 differs from g1 in embed")}),
        ({"embed": "a"}, set()),
    ):
        built.index.generation = Generation(
            name="g2", config=IndexConfig(), how=fingerprints, topics={}, state="live"
        )
        generations = {
            "g1": Generation(name="g1", config=IndexConfig(), how={"embed": "a"}, topics={}),
            "g2": built.index.generation,
        }
        assert (
            list_reasons(
                compare_runs(then, await query_and_record(built, 2), DiffContext(generations, {}))
            )
            == expected
        )
