"""Documents in their order: copies, depth, and how many results of one."""

from __future__ import annotations

from uuid import UUID

from schemas.profiles import FusionProfile, Profile
from schemas.questions import Filters, SearchRequest
from tests.callers import LOCAL
from tests.unit.retrieval_corpus import PUMP, house

RUN = UUID(int=7)
COST = "How much does the replacement of the bearing cost?"


async def test_copies_are_shown_once_and_keep_their_documents() -> None:
    built = house()
    built.add("pump-copy", PUMP, title="Maintenance plan (copy)")
    response = await built.retriever().search(LOCAL, SearchRequest(query=COST), RUN)
    ids = [result.external_id for result in response.results]
    assert len({"pump", "pump-copy"}.intersection(ids)) == 1 and len(response.results[0].duplicates) == 1


async def test_ranked_documents_hold_folded_copies_right_behind_the_best() -> None:
    built = house()
    built.add("pump-copy", PUMP, title="Maintenance plan (copy)")
    ranked = [external_id for _, external_id, _ in await built.retriever().rank_documents(LOCAL, SearchRequest(query=COST))]
    assert set(ranked[:2]) == {"pump", "pump-copy"} and len(ranked) == len(set(ranked))


async def test_ranked_documents_go_as_deep_as_asked_although_one_document_fills_the_channel() -> None:
    built = house()
    built.add("bearings", *[f"Bearing replacement number {n} cost something." for n in range(150)])
    ranked = await built.retriever().rank_documents(LOCAL, SearchRequest(query=COST), depth=30)
    assert len(ranked) == 30 and built.index.asked["semantic"] > 1


async def test_a_single_channel_is_ranked_by_itself() -> None:
    built = house()
    ranked = await built.retriever().rank_documents(LOCAL, SearchRequest(query=COST, channels=["lexical"]))
    hits = (await built.index.lexical("default", COST, language="en", filters=Filters(), k=100, budget=5000)).hits
    assert [document for document, _, _ in ranked] == list(dict.fromkeys(hit.document_id for hit in hits))


async def test_at_most_so_many_results_of_a_document() -> None:
    built = house()
    built.add("bearings", *[f"Bearing replacement number {n} cost something." for n in range(20)])
    built.profiles = [Profile(name="diverse", fusion=FusionProfile(per_document=2))]
    response = await built.retriever().search(LOCAL, SearchRequest(query=COST, profile="diverse"), RUN)
    assert [result.external_id for result in response.results].count("bearings") == 2
