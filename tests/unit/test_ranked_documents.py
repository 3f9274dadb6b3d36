"""Ranking of documents: duplicates, depth, and results per document."""

from __future__ import annotations

from uuid import UUID

from schemas.profiles import FusionProfile, Profile
from schemas.questions import Filters, SearchRequest
from tests.support.api_client import LOCAL_CALLER
from tests.unit.retrieval_harness import PUMP, make_harness

RUN_ID = UUID(int=7)
COST_QUESTION = "How much does the replacement of the bearing cost?"


async def test_duplicates_are_shown_once_with_their_documents() -> None:
    built = make_harness()
    built.add("pump-copy", PUMP, title="Maintenance plan (copy)")
    response = await built.make_retriever().search(
        LOCAL_CALLER, SearchRequest(query=COST_QUESTION), RUN_ID
    )
    ids = [result.external_id for result in response.results]
    assert (
        len({"pump", "pump-copy"}.intersection(ids)) == 1
        and len(response.results[0].duplicates) == 1
    )


async def test_ranked_documents_include_duplicates_after_the_best() -> None:
    built = make_harness()
    built.add("pump-copy", PUMP, title="Maintenance plan (copy)")
    ranked = [
        external_id
        for _, external_id, _ in await built.make_retriever().rank_documents(
            LOCAL_CALLER, SearchRequest(query=COST_QUESTION)
        )
    ]
    assert set(ranked[:2]) == {"pump", "pump-copy"} and len(ranked) == len(set(ranked))


async def test_ranked_documents_reach_requested_depth() -> None:
    built = make_harness()
    built.add("bearings", *[f"Bearing replacement number {n} cost something." for n in range(150)])
    ranked = await built.make_retriever().rank_documents(
        LOCAL_CALLER, SearchRequest(query=COST_QUESTION), depth=30
    )
    assert len(ranked) == 30 and built.index.call_counts["semantic"] > 1


async def test_single_channel_ranking_keeps_channel_order() -> None:
    built = make_harness()
    ranked = await built.make_retriever().rank_documents(
        LOCAL_CALLER, SearchRequest(query=COST_QUESTION, channels=["lexical"])
    )
    hits = (
        await built.index.search_lexical(
            "default", COST_QUESTION, language="en", filters=Filters(), k=100, budget=5000
        )
    ).hits
    assert [document for document, _, _ in ranked] == list(
        dict.fromkeys(hit.document_id for hit in hits)
    )


async def test_results_per_document_are_limited() -> None:
    built = make_harness()
    built.add("bearings", *[f"Bearing replacement number {n} cost something." for n in range(20)])
    built.profiles = [Profile(name="diverse", fusion=FusionProfile(per_document=2))]
    response = await built.make_retriever().search(
        LOCAL_CALLER, SearchRequest(query=COST_QUESTION, profile="diverse"), RUN_ID
    )
    assert [result.external_id for result in response.results].count("bearings") == 2
