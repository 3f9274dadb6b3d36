from __future__ import annotations

from datetime import date
from uuid import UUID

import pytest

from retrieval.question.query_plan import plan_query
from retrieval.question.stated_filters import find_stated_filters
from schemas.planning import PlanProfile
from schemas.profiles import Profile
from schemas.questions import Filters, SearchRequest, SearchResponse
from tests.support.api_client import LOCAL_CALLER
from tests.unit.retrieval_fakes import GuessedLanguageDetector, LowercaseNameFolder
from tests.unit.retrieval_harness import RetrievalHarness, make_harness
from tests.unit.retrieval_memory_index import IndexedChild, IndexedDocument

RUN_ID = UUID(int=7)
OPEN = Filters()


@pytest.mark.parametrize(
    ("question", "rest", "first", "last"),
    [
        (
            "What do documents from 2024 say about the pier?",
            "What do say about the pier?",
            date(2024, 1, 1),
            date(2024, 12, 31),
        ),
        (
            "In documents between March 2024 and 5 June 2025, who repaired it?",
            "who repaired it?",
            date(2024, 3, 1),
            date(2025, 6, 5),
        ),
        (
            "Which contracts dated 2025-03-14 name Merrin?",
            "Which contracts name Merrin?",
            date(2025, 3, 14),
            date(2025, 3, 14),
        ),
        ("Who spoke in minutes since 2024?", "Who spoke in minutes ?", date(2024, 1, 1), None),
        ("Os documentos antes de maio de 2024 e a taxa", "e a taxa", None, date(2024, 4, 30)),
        ("Dokumente aus 2024 zur Brücke", "zur Brücke", date(2024, 1, 1), date(2024, 12, 31)),
    ],
)
def test_stated_dates_of_documents_become_filters(
    question: str, rest: str, first: date | None, last: date | None
) -> None:
    stated = find_stated_filters(question, OPEN)
    assert stated is not None and stated.question == rest
    assert (stated.filters.date_from, stated.filters.date_to) == (first, last)


@pytest.mark.parametrize(
    "question",
    [
        "How many passengers crossed in August 2025?",
        "What does the annual report of 2025 say?",
        "Which contracts of 2025 name Merrin?",
        "What do files in 2024 hold?",
        "Which documents dated 2024-02-30 name it?",
        "Is C# used, and item #4?",
    ],
)
def test_dates_of_facts_are_no_filters(question: str) -> None:
    assert find_stated_filters(question, OPEN) is None


def test_tags_are_found_by_hash_and_by_word() -> None:
    stated = find_stated_filters('What do documents tagged "fees" and #harbour-dues say?', OPEN)
    assert stated is not None and stated.filters.tags == ["fees", "harbour-dues"]


def test_language_of_the_rest_is_as_sure_as_that_of_the_question() -> None:
    question = "Por que zumbe a bomba nos documentos de 2024?"
    detector, folder = GuessedLanguageDetector(), LowercaseNameFolder()
    whole = plan_query(question, None, detector, folder)
    rest = plan_query(question, None, detector, folder, filters=OPEN)
    assert rest.stated is not None and rest.question == "Por que zumbe a bomba ?"
    assert (rest.language, rest.language_sure) == (whole.language, whole.language_sure)
    assert rest.unfiltered == whole


def test_filters_of_the_request_win() -> None:
    requested = Filters(tags=["mine"], date_from=date(2020, 1, 1), collections=["a"])
    assert find_stated_filters("documents from 2024 #tax", requested) is None
    stated = find_stated_filters("documents from 2024 #tax", Filters(collections=["a"]))
    assert stated is not None and stated.filters.collections == ["a"]


async def search_with_tag(built: RetrievalHarness, **options: object) -> SearchResponse:
    request = SearchRequest.model_validate(
        {"query": "In documents tagged staff, what does the lease say?", **options}
    )
    return await built.make_retriever().search(LOCAL_CALLER, request, RUN_ID)


async def test_stated_tag_restricts_the_search_and_is_reported() -> None:
    built = make_harness()
    child = IndexedChild("The handbook says what the lease means for staff.")
    built.index.add(IndexedDocument("tagged", [[child]], tags=("staff",)))
    response = await search_with_tag(built)
    assert {result.external_id for result in response.results} == {"tagged"}
    plan = response.trace.plan
    assert plan is not None and plan.filters == Filters(tags=["staff"])
    assert any("infer_filters" in note for note in response.trace.notes)


async def test_request_or_profile_turns_stated_filters_off() -> None:
    built = make_harness()
    built.profiles = [Profile(name="open", plan=PlanProfile(filters=False))]
    for options in ({"infer_filters": False}, {"profile": "open"}):
        response = await search_with_tag(built, **options)
        assert response.results[0].external_id == "lease"


async def test_filter_without_documents_is_dropped_by_the_second_search() -> None:
    response = await search_with_tag(make_harness())
    assert response.results[0].external_id == "lease"
    route = response.trace.route
    assert route.escalated_from is not None and "“documents tagged staff”" in route.reason
    assert any("All documents were searched" in note for note in response.trace.notes)
    assert response.trace.plan is not None and response.trace.plan.filters is None
