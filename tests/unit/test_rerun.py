from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from retrieval.runs.rerun import Rerun, rerun_run
from schemas.errors import NotFound
from schemas.events import QueryAnswered
from schemas.planning import IntentProfile, PlanProfile
from schemas.profiles import FusionProfile, Profile, RerankProfile
from schemas.questions import Filters, QueryRequest, SearchRequest
from tests.support.api_client import LOCAL_CALLER
from tests.unit.retrieval_fakes import PunctuationSentenceSplitter, ScriptedChat, WordReranker
from tests.unit.retrieval_harness import RetrievalHarness, make_harness
from tests.unit.run_rows import COST_QUESTION, RUN_ID, FakeRecordedTexts, make_run_row

UNANSWERABLE_QUESTION = "Who was the first emperor of ancient Rome?"
GENERATED_ANSWER = {
    "sufficient": True,
    "sentences": [
        {"text": "The replacement of the bearing costs 18,740 euros.", "citations": [1]},
        {"text": "It is green.", "citations": [1]},
    ],
    "assumptions": ["The price is current."],
    "limitations": [],
}


async def rerun_query(built: RetrievalHarness, **options: Any) -> Rerun:
    return await rerun_run(
        {"run_record": None, "response": None, **make_run_row(built)},
        LOCAL_CALLER,
        FakeRecordedTexts(built, **options),
        PunctuationSentenceSplitter(),
    )


REQUESTS: list[tuple[str, Mapping[str, Any]]] = [
    (COST_QUESTION, {}),
    (COST_QUESTION, {"explain": True, "k": 3}),
    ("When does the lease of the warehouse end?", {}),
    ("Quantos dias de férias têm os trabalhadores?", {}),
    ("What is the price of the impeller from Borealis?", {"return_context": False}),
    (COST_QUESTION, {"mode": "vector"}),
    ("topic 3 with figures", {"filters": Filters(external_ids=["report-3", "report-4"])}),
    ("annual report figures about region", {"k": 40}),
    # Named documents, as an address that is cut and within the sentence.
    ("Price list: what is the price of the impeller from Borealis?", {"explain": True}),
    ("What does the Price list say about the impeller?", {"explain": True}),
    (UNANSWERABLE_QUESTION, {}),
    ("What is it?", {}),
]


@pytest.mark.parametrize(("question", "options"), REQUESTS)
async def test_rerun_reproduces_query_byte_for_byte(question: str, options: dict[str, Any]) -> None:
    built = make_harness()
    built.add("lease", "The lease of the warehouse ends in 2031.", warning_codes=["EMBEDDED_FILE"])
    response = await built.make_retriever().query(
        LOCAL_CALLER, QueryRequest(query=question, **options), RUN_ID
    )
    made = await rerun_query(built)
    assert made.same and made.differences == () and made.missing == ()
    assert made.response.model_dump_json() == response.model_dump_json()


@pytest.mark.parametrize(
    ("question", "options"), [pair for pair in REQUESTS if "return_context" not in pair[1]]
)
async def test_rerun_reproduces_search_byte_for_byte(
    question: str, options: dict[str, Any]
) -> None:
    built = make_harness()
    response = await built.make_retriever().search(
        LOCAL_CALLER, SearchRequest(query=question, **options), RUN_ID
    )
    assert (await rerun_query(built)).response.model_dump_json() == response.model_dump_json()


@pytest.mark.parametrize(
    "profile",
    [
        Profile(rerank=RerankProfile(reranker="none")),
        Profile(rerank=RerankProfile(parents=3)),
        Profile(fusion=FusionProfile(method="rrf")),
        Profile(fusion=FusionProfile(near_duplicates=False, per_document=1)),
        Profile(rerank=RerankProfile(expand="sum")),
        Profile(rerank=RerankProfile(word_idf="always")),
        Profile(fusion=FusionProfile(unnamed_semantic=2.0)),
        Profile(rerank=RerankProfile(named_factor=3.0)),
        Profile(
            fusion=FusionProfile(
                freshness=2.0, metadata=1.0, entity_overlap=1.0, hop=3.0, edge_types={"knows": 2.0}
            )
        ),
        Profile(plan=PlanProfile(intents={"factoid": IntentProfile(weights={"lexical": 3.0})})),
    ],
)
@pytest.mark.parametrize("role", ["added", "replaces"])
async def test_rerun_uses_recorded_profile(profile: Profile, role: Any) -> None:
    built = make_harness()
    built.reranker = WordReranker(role=role)
    built.profiles = [profile.model_copy(update={"name": "then"})]
    response = await built.make_retriever().query(
        LOCAL_CALLER, QueryRequest(query=COST_QUESTION, profile="then"), RUN_ID
    )
    built.profiles = []
    assert (await rerun_query(built)).response.model_dump_json() == response.model_dump_json()


async def test_rerun_reproduces_answer_without_embedder() -> None:
    built = make_harness()
    built.embedder.unavailable = True
    response = await built.make_retriever().query(
        LOCAL_CALLER, QueryRequest(query=COST_QUESTION), RUN_ID
    )
    assert response.trace.channels_failed and (await rerun_query(built)).response == response


async def test_rerun_reproduces_generated_answer_without_model() -> None:
    built = make_harness()
    built.chat = ScriptedChat(GENERATED_ANSWER)
    response = await built.make_retriever().query(
        LOCAL_CALLER, QueryRequest(query=COST_QUESTION), RUN_ID
    )
    assert response.answer and "green" not in response.answer
    built.chat.answer = RuntimeError("a rerun calls no model")
    made = await rerun_query(built)
    assert made.same and made.response == response


async def test_rerun_reproduces_extractive_fallback_with_limitation() -> None:
    built = make_harness()
    built.chat = ScriptedChat({"nonsense": True})
    response = await built.make_retriever().query(
        LOCAL_CALLER, QueryRequest(query=COST_QUESTION), RUN_ID
    )
    assert "gave no usable answer" in response.limitations[0]
    assert (await rerun_query(built)).response == response


async def test_rerun_tolerates_missing_unread_candidate() -> None:
    built = make_harness()
    response = await built.make_retriever().query(
        LOCAL_CALLER, QueryRequest(query=COST_QUESTION, k=1), RUN_ID
    )
    made = await rerun_query(built, without=["report-3"])
    assert made.response == response and len(made.missing) == 1


async def test_rerun_names_document_of_missing_passage() -> None:
    built = make_harness()
    response = await built.make_retriever().query(
        LOCAL_CALLER, QueryRequest(query=COST_QUESTION), RUN_ID
    )
    with pytest.raises(NotFound, match=str(response.citations[0].document_id)) as raised:
        await rerun_query(built, without=["pump"])
    assert raised.value.code == "PASSAGE_GONE"


async def test_rerun_detects_tampered_answer() -> None:
    built = make_harness()
    await built.make_retriever().query(LOCAL_CALLER, QueryRequest(query=COST_QUESTION), RUN_ID)
    row = {"run_record": None, **make_run_row(built)}
    row["response"]["answer"] += "!"
    made = await rerun_run(
        row, LOCAL_CALLER, FakeRecordedTexts(built), PunctuationSentenceSplitter()
    )
    assert not made.same and made.differences == ("answer",)


async def test_field_that_an_older_record_lacks_is_no_difference() -> None:
    built = make_harness()
    await built.make_retriever().query(LOCAL_CALLER, QueryRequest(query=COST_QUESTION), RUN_ID)
    row = {"run_record": None, **make_run_row(built)}
    del row["response"]["language"]
    made = await rerun_run(
        row, LOCAL_CALLER, FakeRecordedTexts(built), PunctuationSentenceSplitter()
    )
    assert made.same and made.response.language == "en"


async def test_run_with_former_settings_is_read_and_rerun() -> None:
    built = make_harness()
    await built.make_retriever().query(LOCAL_CALLER, QueryRequest(query=COST_QUESTION), RUN_ID)
    answered = built.published_events[-1]
    assert isinstance(answered, QueryAnswered)
    payload = answered.model_dump(mode="json")
    payload["run_record"]["profile"]["rerank"] |= {"smoothing": 0.0, "neighbors": 5}
    payload["candidates"][0]["neighbor_mean"] = 0.5
    built.published_events[-1] = QueryAnswered.model_validate_json(json.dumps(payload))
    assert (await rerun_query(built)).same


async def test_rerun_requires_recorded_response() -> None:
    built = make_harness()
    await built.make_retriever().query(LOCAL_CALLER, QueryRequest(query=COST_QUESTION), RUN_ID)
    built.published_events.pop()
    with pytest.raises(NotFound, match="has no recorded response and no run_record"):
        await rerun_query(built)


async def test_run_record_contains_hashes_instead_of_text() -> None:
    built = make_harness()
    await built.make_retriever().query(LOCAL_CALLER, QueryRequest(query=COST_QUESTION, k=1), RUN_ID)
    row = make_run_row(built)
    assert "Two technicians" not in json.dumps(
        [row["run_record"], row["candidates"], row["numbers"]]
    )
