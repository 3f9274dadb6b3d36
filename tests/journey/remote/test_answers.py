"""Every model on a server: the real system, asked through one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.journey.remote.library import (
    ALLOWANCE,
    DEADLINE,
    FOREIGN,
    FOREIGN_PT,
    Desk,
    Library,
    assert_quoted,
    desk_of,
    settings_for,
)


@pytest.mark.parametrize(("question", "document", "value"), [(ALLOWANCE, "handbook", "74 euros"), (DEADLINE, "contract", "540 dias")])
async def test_an_answer_is_written_from_the_passages_and_every_sentence_cites_them(
    desk: Desk, library: Library, question: str, document: str, value: str
) -> None:
    answer = await desk.ask(question)
    assert not answer["refused"] and value in answer["answer"], answer
    assert {citation["external_id"] for citation in answer["citations"]} == {document}
    assert_quoted(answer, library)
    assert answer["judge"]["decision"] == "PASS"


async def test_the_trace_tells_models_calls_tokens_reranker_and_the_time_of_each_step(desk: Desk) -> None:
    trace = (await desk.ask(ALLOWANCE))["trace"]
    assert trace["models"] == {"embed": "fake-embed", "answer": "fake-chat"}
    asked = desk.chats[0]
    words = sum(len(message["content"].split()) for message in asked["messages"])
    assert trace["model_calls"] == len(desk.chats) == 1 and trace["tokens"] > words
    assert (trace["reranker"], trace["threshold"], trace["max_rerank_score"]) == ("fake-rerank", 0.6, 1.0)
    assert {"plan", "channels", "chunks", "fuse", "rerank", "read", "answer", "judge", "total"} == set(trace["timings_ms"])
    assert trace["timings_ms"]["total"] >= max(value for step, value in trace["timings_ms"].items() if step != "total") > 0
    assert trace["channels_failed"] == {} and set(trace["channels_used"]) == {"lexical", "semantic", "graph"}
    assert [len(desk.fake.asked(path)) for path in ("embeddings", "rerank", "completions")] == [1, 1, 1]


@pytest.mark.parametrize(("question", "language"), [(FOREIGN, "en"), (FOREIGN_PT, "pt")])
async def test_below_the_rerankers_threshold_no_chat_model_is_asked(desk: Desk, question: str, language: str) -> None:
    answer = await desk.ask(question)
    assert (answer["refused"], answer["answer"], answer["code"], answer["language"]) == (True, None, "NO_SUITABLE_CONTEXT", language)
    assert answer["message"].startswith({"en": "The documents", "pt": "Os documentos"}[language])
    assert desk.chats == [] and answer["trace"]["model_calls"] == 0
    assert answer["trace"]["max_rerank_score"] < answer["trace"]["threshold"]


@pytest.mark.parametrize(("question", "language"), [(FOREIGN, "en"), (FOREIGN_PT, "pt")])
async def test_a_model_that_finds_the_context_insufficient_refuses_in_the_questions_language(desk: Desk, question: str, language: str) -> None:
    answer = await desk.ask(question, profile="bold")
    assert (answer["refused"], answer["code"], answer["language"]) == (True, "INSUFFICIENT_CONTEXT", language)
    assert answer["message"].startswith({"en": "The passages", "pt": "Os trechos"}[language])
    assert len(desk.chats) == answer["trace"]["model_calls"] == 1 and answer["trace"]["tokens"] > 0
    assert f"({language})" in desk.chats[0]["messages"][0]["content"]


@pytest.mark.parametrize(
    "bad",
    [
        ("The daily allowance in Lisbon is 74 euros.", []),
        ("Lisbon lies by the sea.", [1]),
        ("The daily allowance in Lisbon is 99 euros.", [1]),
        ("Trains are fast.", [77]),
    ],
)
async def test_a_sentence_that_no_passage_proves_is_taken_out(desk: Desk, library: Library, bad: tuple[str, list[int]]) -> None:
    desk.written(("In Lisbon the daily allowance is 74 euros.", [1]), bad)
    answer = await desk.ask(ALLOWANCE)
    assert answer["answer"].startswith("In Lisbon the daily allowance is 74 euros. [1]") and bad[0] not in answer["answer"]
    assert any("left out" in line for line in answer["limitations"])
    assert_quoted(answer, library)


async def test_an_answer_without_any_proof_is_no_answer(desk: Desk) -> None:
    desk.written(("Lisbon lies by the sea.", [1]))
    answer = await desk.ask(ALLOWANCE)
    assert (answer["refused"], answer["code"], answer["answer"], answer["citations"]) == (True, "INSUFFICIENT_CONTEXT", None, [])


async def test_a_model_that_answers_in_another_shape_once_is_asked_again_and_both_calls_are_counted(desk: Desk) -> None:
    desk.fake.say("Seventy-four.")
    answer = await desk.ask(ALLOWANCE)
    assert "74 euros" in answer["answer"] and answer["trace"]["models"]["answer"] == "fake-chat"
    assert answer["trace"]["model_calls"] == len(desk.chats) == 2


async def test_a_model_that_never_keeps_to_the_schema_leaves_quotes_and_its_calls_are_counted(desk: Desk, library: Library) -> None:
    desk.fake.say("Seventy-four.", "Seventy-four euros.")
    answer = await desk.ask(ALLOWANCE)
    assert answer["trace"]["models"]["answer"] == "extractive" and "schema" in answer["limitations"][0]
    assert answer["trace"]["model_calls"] == len(desk.chats) == 2 and answer["trace"]["tokens"] > 0
    assert_quoted(answer, library)


@pytest.mark.parametrize(
    ("fault", "profile", "told"),
    [
        ({"status": 500}, "default", "answered 500"),
        ({"status": 429, "retry_after": 3600}, "default", "answered 429"),
        ({"status": 401}, "default", "answered 401"),
        ({"status": 400}, "default", "answered 400"),
        ({"malformed": True}, "default", "no JSON object"),
        ({"hang": True}, "quick", "no answer within 0.3 s"),
    ],
)
async def test_a_chat_server_that_fails_leaves_a_quoted_answer_that_says_so(
    desk: Desk, library: Library, fault: dict[str, Any], profile: str, told: str
) -> None:
    desk.fake.fail(on="completions", times=9, **fault)
    answer = await desk.ask(ALLOWANCE, profile=profile)
    assert not answer["refused"] and "74 euros" in answer["answer"].replace("**", "")
    assert told in answer["limitations"][0] and "quoted" in answer["limitations"][0]
    assert answer["trace"]["models"]["answer"] == "extractive" and answer["trace"]["model_calls"] == 1
    assert_quoted(answer, library)


async def test_no_chat_server_at_all_leaves_a_quoted_answer_that_says_so(library: Library) -> None:
    gone = settings_for(library.fake, library.settings.data_dir, "chat.base_url=http://127.0.0.1:1/v1")
    async with desk_of(library, gone) as desk:
        answer = await desk.ask(DEADLINE)
    assert "540 dias" in answer["answer"].replace("**", "") and "127.0.0.1:1" in answer["limitations"][0]


async def test_a_server_that_asks_for_a_short_rest_is_asked_again(desk: Desk) -> None:
    desk.fake.fail(on="completions", times=2, status=429, retry_after=0.05)
    answer = await desk.ask(ALLOWANCE)
    assert answer["trace"]["models"]["answer"] == "fake-chat" and len(desk.chats) == 3


async def test_the_rerankers_order_replaces_the_fused_one(desk: Desk) -> None:
    found = (await desk.http.post("/v1/search", json={"query": "daily allowance", "explain": True})).json()
    scores = [result["explanation"]["rerank_score"] for result in found["results"]]
    assert scores == sorted(scores, reverse=True) == [result["score"] for result in found["results"]]
    assert scores[0] == 1.0 and found["trace"]["reranker"] == "fake-rerank"


@pytest.mark.parametrize(
    ("fault", "profile"), [({"status": 503}, "default"), ({"nan": True}, "default"), ({"drop": True}, "default"), ({"hang": True}, "quick")]
)
async def test_without_its_rerank_server_the_fused_order_stands_and_the_trace_says_so(
    desk: Desk, library: Library, fault: dict[str, Any], profile: str
) -> None:
    desk.fake.fail(on="rerank", times=9, **fault)
    answer = await desk.ask(ALLOWANCE, profile=profile)
    assert not answer["refused"] and "74 euros" in answer["answer"]
    trace = answer["trace"]
    assert (trace["reranker"], trace["max_rerank_score"], trace["channels_failed"]) == (None, None, {})
    assert [note for note in trace["notes"] if note.startswith("not reranked: ")]
    scores = [context["score"] for context in answer["contexts"]]
    assert scores == sorted(scores, reverse=True)
    assert_quoted(answer, library)


@pytest.mark.parametrize(
    ("fault", "profile"),
    [({"status": 500}, "default"), ({"nan": True}, "default"), ({"wrong_dimension": True}, "default"), ({"hang": True}, "quick")],
)
async def test_without_the_embedding_server_the_other_channels_answer_and_semantic_is_named(
    desk: Desk, library: Library, fault: dict[str, Any], profile: str
) -> None:
    desk.fake.fail(on="embeddings", times=9, **fault)
    answer = await desk.ask(ALLOWANCE, profile=profile)
    assert not answer["refused"] and "74 euros" in answer["answer"]
    assert list(answer["trace"]["channels_failed"]) == ["semantic"] and answer["trace"]["channels_used"] == ["lexical", "graph"]
    assert answer["confidence"]["level"] == "low" and "embed" not in answer["trace"]["models"]
    assert any("semantic" in line for line in answer["limitations"])
    assert_quoted(answer, library)


async def test_when_every_server_is_away_words_still_answer(desk: Desk, library: Library) -> None:
    desk.fake.fail(times=99, status=503)
    answer = await desk.ask(ALLOWANCE)
    assert "74 euros" in answer["answer"].replace("**", "") and answer["trace"]["models"] == {"answer": "extractive"}
    assert_quoted(answer, library)


async def test_what_the_model_extracts_is_in_the_graph_if_it_stands_in_the_text(desk: Desk) -> None:
    entities = (await desk.http.get("/v1/entities")).json()["items"]
    assert {entity["name"] for entity in entities} == {"Norte Energia S.A.", "Lisbon"}
    lisbon = next(entity for entity in entities if entity["name"] == "Lisbon")
    told = (await desk.http.get(f"/v1/entities/{lisbon['id']}")).json()
    assert [(claim["property"], claim["value"]) for claim in told["claims"]] == [("daily allowance", "74 euros")]
    answer = await desk.ask("What is the daily allowance of Norte Energia S.A. in Lisbon?")
    assert answer["trace"]["channels"]["graph"]["returned"] > 0


async def test_a_model_that_takes_its_time_keeps_nobody_else_from_asking(desk: Desk, library: Library) -> None:
    """Four at once, no two of them the same, are more than there are connections for."""
    library.fake.fail(on="completions", times=4, hang=True)
    waiting = [asyncio.create_task(desk.ask(ALLOWANCE, k=k)) for k in range(1, 5)]
    async with asyncio.timeout(10):
        while len(desk.chats) < 4:
            await asyncio.sleep(0.01)
    assert (await desk.ask(DEADLINE))["trace"]["models"]["answer"] == "fake-chat"
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
