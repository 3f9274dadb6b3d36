from __future__ import annotations

from typing import Any
from uuid import UUID

from retrieval.diff import Known, compare
from retrieval.past import Past, past_of
from schemas.generations import Generation, IndexConfig
from schemas.profiles import AnswerProfile, Profile
from schemas.questions import QueryRequest
from schemas.run_diffs import DocumentNow, RunDiff
from tests.callers import LOCAL
from tests.unit.retrieval_corpus import FERIAS, LEASE, PUMP, STAFF, House
from tests.unit.retrieval_index import document_id
from tests.unit.test_rerun import COST, recorded

NOTHING = Known({}, {})


def corpus(**texts: str) -> House:
    built = House()
    for name, text in texts.items():
        built.add(name, text, title=name.title())
    return built


async def asked(built: House, run: int = 1, **options: Any) -> Past:
    built.published.clear()
    await built.retriever().query(LOCAL, QueryRequest(query=COST, **options), UUID(int=run))
    return past_of(recorded(built))


def reasons(diff: RunDiff) -> set[tuple[str, str]]:
    return {(reason.cause, reason.detail) for reason in diff.reasons}


async def test_the_same_question_over_the_same_corpus_differs_in_nothing() -> None:
    built = corpus(pump=PUMP, lease=LEASE, staff=STAFF)
    diff = compare(await asked(built), await asked(built, 2), NOTHING)
    assert diff.same and not diff.reasons and diff.then.run_id != diff.now.run_id


async def test_a_document_that_is_gone_is_named_as_the_reason_of_another_answer() -> None:
    then, now = await asked(corpus(pump=PUMP, lease=LEASE, staff=STAFF)), await asked(corpus(lease=LEASE, staff=STAFF), 2)
    diff = compare(then, now, Known({}, {document_id("pump"): DocumentNow(visible_revision=None, state="withdrawn")}))
    assert diff.answer_changed and diff.citations_changed and not diff.same
    assert [(one.external_id, one.rank_now) for one in diff.gone] == [("pump", None)]
    assert ("document", "Pump answers no question any more (withdrawn)") in reasons(diff)


async def test_a_document_that_came_since_is_new_and_moves_the_others() -> None:
    then, now = await asked(corpus(lease=LEASE, staff=STAFF)), await asked(corpus(pump=PUMP, lease=LEASE, staff=STAFF), 2)
    diff = compare(then, now, NOTHING)
    assert [(one.external_id, one.rank_then, one.rank_now) for one in diff.new] == [("pump", None, 1)]
    assert ("document", "Pump was not found then: it is new, or has changed") in reasons(diff)


async def test_another_profile_is_the_first_reason_and_its_settings_are_named() -> None:
    built = corpus(pump=PUMP, lease=LEASE, staff=STAFF, ferias=FERIAS)
    built.profiles = [Profile(name="narrow", answer=AnswerProfile(trim=1.0))]
    diff = compare(await asked(built), await asked(built, 2, profile="narrow"), NOTHING)
    assert diff.profile_changes["answer.trim"] == (0.6, 1.0)
    assert diff.request_changes == {"profile": ("default", "narrow")}
    assert [reason.cause for reason in diff.reasons][:2] == ["request", "profile"]


async def test_generations_made_by_other_stages_are_a_reason_and_a_rebuild_is_none() -> None:
    built = corpus(pump=PUMP, lease=LEASE)
    then = await asked(built)
    for how, expected in (({"embed": "b"}, {("generation", "generation g2 differs from g1 in embed")}), ({"embed": "a"}, set())):
        built.index.generation = Generation(name="g2", config=IndexConfig(), how=how, topics={}, state="live")
        known = {"g1": Generation(name="g1", config=IndexConfig(), how={"embed": "a"}, topics={}), "g2": built.index.generation}
        assert reasons(compare(then, await asked(built, 2), Known(known, {}))) == expected
