from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import pytest

from processors import runs
from retrieval.kept import text_hash
from retrieval.rerun import Rerun, rerun
from schemas.errors import NotFound
from schemas.events import Fact, QueryAnswered, QueryReceived
from schemas.ports.runs import PastText
from schemas.profiles import FusionProfile, Profile, RerankProfile
from schemas.questions import Filters, QueryRequest, SearchRequest
from tests.callers import LOCAL
from tests.unit.retrieval_corpus import House, house
from tests.unit.retrieval_fakes import FullStops, ScriptedChat, WordMaxSim

RUN = UUID(int=7)
COST = "How much does the replacement of the bearing cost?"
NOBODY = "Who was the first emperor of ancient Rome?"
WRITTEN = {
    "sufficient": True,
    "sentences": [{"text": "The replacement of the bearing costs 18,740 euros.", "citations": [1]}, {"text": "It is green.", "citations": [1]}],
    "assumptions": ["The price is current."],
    "limitations": [],
}


class Kept:
    """Past texts of an index that may have lost some."""

    def __init__(self, built: House, *, without: Sequence[str] = ()) -> None:
        self._texts = {view.chunk_id: view.text for view in built.index.views.values() if view.external_id not in without}
        self._texts |= {view.parent_id: view.text for view in built.index.parent_views.values() if not any(word in view.text for word in without)}

    async def find(self, tenant: str, wanted: Sequence[PastText]) -> dict[UUID, str]:
        return {one.id: text for one in wanted if (text := self._texts.get(one.id)) is not None and text_hash(text) == one.text_sha256}


def recorded(built: House) -> dict[str, Any]:
    """The row that the facts of the only question make, after a journey through the log's JSON."""
    row: dict[str, Any] = {}
    for event in built.published:
        assert isinstance(event, QueryReceived | QueryAnswered)
        [found] = runs.project(Fact(RUN, type(event).model_validate_json(event.model_dump_json(exclude_none=True)), "", "", None))
        row |= {name: value for name in found.__slots__ if (value := getattr(found, name)) not in (None, "", [], {})}
    return dict(json.loads(json.dumps(row, default=str)))


async def again(built: House, **options: Any) -> Rerun:
    return await rerun({"basis": None, "response": None, **recorded(built)}, LOCAL, Kept(built, **options), FullStops())


ASKED: list[tuple[str, Mapping[str, Any]]] = [
    (COST, {}),
    (COST, {"explain": True, "k": 3}),
    ("When does the lease of the warehouse end?", {}),
    ("Quantos dias de férias têm os trabalhadores?", {}),
    ("What is the price of the impeller from Borealis?", {"return_context": False}),
    (COST, {"mode": "vector"}),
    ("topic 3 with figures", {"filters": Filters(external_ids=["report-3", "report-4"])}),
    ("annual report figures about region", {"k": 40}),
    (NOBODY, {}),
    ("What is it?", {}),
]


@pytest.mark.parametrize(("question", "options"), ASKED)
async def test_a_past_answer_is_made_again_byte_for_byte(question: str, options: dict[str, Any]) -> None:
    built = house()
    response = await built.retriever().query(LOCAL, QueryRequest(query=question, **options), RUN)
    made = await again(built)
    assert made.same and made.differences == () and made.missing == ()
    assert made.response.model_dump_json() == response.model_dump_json()


@pytest.mark.parametrize(("question", "options"), [pair for pair in ASKED if "return_context" not in pair[1]])
async def test_a_past_search_is_made_again_byte_for_byte(question: str, options: dict[str, Any]) -> None:
    built = house()
    response = await built.retriever().search(LOCAL, SearchRequest(query=question, **options), RUN)
    assert (await again(built)).response.model_dump_json() == response.model_dump_json()


@pytest.mark.parametrize(
    "profile",
    [
        Profile(rerank=RerankProfile(reranker="none")),
        Profile(rerank=RerankProfile(parents=3)),
        Profile(fusion=FusionProfile(method="rrf")),
        Profile(fusion=FusionProfile(near_duplicates=False, per_document=1)),
        Profile(rerank=RerankProfile(expand="sum")),
    ],
)
@pytest.mark.parametrize("role", ["added", "replaces"])
async def test_an_answer_is_made_again_by_the_profile_of_then(profile: Profile, role: Any) -> None:
    built = house()
    built.reranker = WordMaxSim(role=role)
    built.profiles = [profile.model_copy(update={"name": "then"})]
    response = await built.retriever().query(LOCAL, QueryRequest(query=COST, profile="then"), RUN)
    built.profiles = []
    assert (await again(built)).response.model_dump_json() == response.model_dump_json()


async def test_an_answer_without_engines_is_made_again_by_words() -> None:
    built = house()
    built.embedder.away = True
    response = await built.retriever().query(LOCAL, QueryRequest(query=COST), RUN)
    assert response.trace.channels_failed and (await again(built)).response == response


async def test_a_written_answer_is_made_again_from_what_the_model_said_then() -> None:
    built = house()
    built.chat = ScriptedChat(WRITTEN)
    response = await built.retriever().query(LOCAL, QueryRequest(query=COST), RUN)
    assert response.answer and "green" not in response.answer
    built.chat.answer = RuntimeError("no model is asked")
    made = await again(built)
    assert made.same and made.response == response


async def test_a_quoted_answer_in_place_of_a_model_that_failed_is_made_again_with_its_note() -> None:
    built = house()
    built.chat = ScriptedChat({"nonsense": True})
    response = await built.retriever().query(LOCAL, QueryRequest(query=COST), RUN)
    assert "gave no usable answer" in response.limitations[0]
    assert (await again(built)).response == response


async def test_a_candidate_that_was_not_read_may_be_gone() -> None:
    built = house()
    response = await built.retriever().query(LOCAL, QueryRequest(query=COST, k=1), RUN)
    made = await again(built, without=["report-3"])
    assert made.response == response and len(made.missing) == 1


async def test_an_answer_from_a_passage_that_is_gone_names_its_document() -> None:
    built = house()
    response = await built.retriever().query(LOCAL, QueryRequest(query=COST), RUN)
    with pytest.raises(NotFound, match=str(response.citations[0].document_id)) as raised:
        await again(built, without=["pump"])
    assert raised.value.code == "PASSAGE_GONE"


async def test_a_tampered_number_is_told() -> None:
    built = house()
    await built.retriever().query(LOCAL, QueryRequest(query=COST), RUN)
    row = {"basis": None, **recorded(built)}
    row["response"]["answer"] += "!"
    made = await rerun(row, LOCAL, Kept(built), FullStops())
    assert not made.same and made.differences == ("answer",)


async def test_a_run_without_an_answer_cannot_be_made_again() -> None:
    built = house()
    await built.retriever().query(LOCAL, QueryRequest(query=COST), RUN)
    built.published.pop()
    with pytest.raises(NotFound, match="has no response, no basis"):
        await again(built)


async def test_what_is_recorded_holds_no_text_but_its_hash() -> None:
    built = house()
    await built.retriever().query(LOCAL, QueryRequest(query=COST, k=1), RUN)
    row = recorded(built)
    assert "Two technicians" not in json.dumps([row["basis"], row["candidates"], row["numbers"]])
