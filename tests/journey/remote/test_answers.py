"""Query the system with every model on a server."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.journey.remote.corpus import (
    ALLOWANCE_QUESTION,
    DEADLINE_QUESTION,
    UNANSWERABLE_QUESTION_PT,
    ApiStack,
    IndexedCorpus,
    assert_citations_match_corpus,
    make_settings,
    open_api_stack,
)
from tests.support.channels import DEFAULT_CHANNELS
from tests.support.eventually import eventually


def count_calls(answer: dict[str, Any], task: str) -> tuple[int, int]:
    """Return the calls that were served, and those that failed."""
    (usage,) = [item for item in answer["trace"]["usage"] if item["task"] == task]
    return usage["calls"], usage["failed"]


@pytest.mark.parametrize(
    ("question", "document", "value"),
    [(ALLOWANCE_QUESTION, "handbook", "74 euros"), (DEADLINE_QUESTION, "contract", "540 dias")],
)
async def test_every_answer_sentence_cites_a_passage(
    stack: ApiStack, corpus: IndexedCorpus, question: str, document: str, value: str
) -> None:
    answer = await stack.ask(question)
    assert not answer["refused"] and value in answer["answer"], answer
    assert {citation["external_id"] for citation in answer["citations"]} == {document}
    assert_citations_match_corpus(answer, corpus)
    assert answer["judge"]["decision"] == "PASS"


async def test_trace_has_models_calls_tokens_reranker_and_timings(stack: ApiStack) -> None:
    trace = (await stack.ask(ALLOWANCE_QUESTION))["trace"]
    assert trace["models"] == {"embed": "fake-embed", "answer": "fake-chat"}
    request = stack.chat_requests[0]
    words = sum(len(message["content"].split()) for message in request["messages"])
    assert len(stack.chat_requests) == 1 and trace["tokens"] > words
    assert trace["model_calls"] == len(stack.fake.requests) == 3
    assert {item["task"]: (item["model"], item["calls"]) for item in trace["usage"]} == {
        "embed": ("fake-embed", 1),
        "rerank": ("fake-rerank", 1),
        "answer": ("fake-chat", 1),
    }
    assert trace["cost"] is None
    assert trace["unpriced"] == ["fake-chat", "fake-embed", "fake-rerank"]
    assert trace["rerank_requests"] == 1
    assert (trace["reranker"], trace["threshold"], trace["max_rerank_score"]) == (
        "fake-rerank",
        0.6,
        1.0,
    )
    assert {
        "plan",
        "link",
        "channels",
        "chunks",
        "fuse",
        "bridge",
        "rerank",
        "read",
        "evidence",
        "answer",
        "judge",
        "total",
    } == set(trace["timings_ms"])
    assert (
        trace["timings_ms"]["total"]
        >= max(value for step, value in trace["timings_ms"].items() if step != "total")
        > 0
    )
    assert trace["channels_failed"] == {} and set(trace["channels_used"]) == set(DEFAULT_CHANNELS)
    assert [
        len(stack.fake.get_request_bodies(path)) for path in ("embeddings", "rerank", "completions")
    ] == [1, 1, 1]


async def test_refusal_below_rerank_threshold_skips_chat_model(stack: ApiStack) -> None:
    answer = await stack.ask(UNANSWERABLE_QUESTION_PT)
    assert (answer["refused"], answer["answer"], answer["code"], answer["language"]) == (
        True,
        None,
        "NO_SUITABLE_CONTEXT",
        "pt",
    )
    assert answer["message"].startswith("Os documentos")
    assert stack.chat_requests == []
    assert answer["trace"]["model_calls"] == len(stack.fake.requests) > 0
    assert answer["trace"]["max_rerank_score"] < answer["trace"]["threshold"]


async def test_insufficient_context_refusal_uses_question_language(stack: ApiStack) -> None:
    answer = await stack.ask(UNANSWERABLE_QUESTION_PT, profile="bold")
    assert (answer["refused"], answer["code"], answer["language"]) == (
        True,
        "INSUFFICIENT_CONTEXT",
        "pt",
    )
    assert answer["message"].startswith("Os trechos")
    assert len(stack.chat_requests) == 1 and answer["trace"]["tokens"] > 0
    assert "(pt)" in stack.chat_requests[0]["messages"][0]["content"]


async def test_repeated_schema_violation_falls_back_to_extractive_answer(
    stack: ApiStack, corpus: IndexedCorpus
) -> None:
    stack.fake.queue_answers("Seventy-four.", "Seventy-four euros.")
    answer = await stack.ask(ALLOWANCE_QUESTION)
    assert (
        answer["trace"]["models"]["answer"] == "extractive" and "schema" in answer["limitations"][0]
    )
    assert len(stack.chat_requests) == 2 and count_calls(answer, "answer") == (2, 0)
    assert_citations_match_corpus(answer, corpus)


@pytest.mark.parametrize(
    ("fault", "profile", "expected_limitation"),
    [
        ({"status": 500}, "default", "answered 500"),
        ({"status": 400}, "default", "answered 400"),
        ({"malformed": True}, "default", "not a JSON object"),
        ({"hang": True}, "quick-answer", "timed out after 0.3 s"),
    ],
)
async def test_failing_chat_server_falls_back_to_extractive_answer(
    stack: ApiStack,
    corpus: IndexedCorpus,
    fault: dict[str, Any],
    profile: str,
    expected_limitation: str,
) -> None:
    stack.fake.fail(on="completions", times=9, **fault)
    answer = await stack.ask(ALLOWANCE_QUESTION, profile=profile)
    assert not answer["refused"] and "74 euros" in answer["answer"].replace("**", "")
    assert expected_limitation in answer["limitations"][0] and "quoted" in answer["limitations"][0]
    assert answer["trace"]["models"]["answer"] == "extractive"
    calls, failed = count_calls(answer, "answer")
    assert calls + failed == len(stack.chat_requests)
    # Whether the model worked is unknown only where its reply was lost.
    assert bool(calls) == ("status" not in fault)
    assert_citations_match_corpus(answer, corpus)


async def test_caps_of_the_profile_stop_calls_and_price_table_gives_the_cost(
    corpus: IndexedCorpus,
) -> None:
    prices = {
        "fake-chat": {"input_per_million": 10, "output_per_million": 30},
        "fake-rerank": {"per_call": 0.002},
        "fake-embed": {},
    }
    priced = make_settings(
        corpus.fake,
        corpus.settings.data_dir,
        f"prices.models={json.dumps(prices)}",
        "prices.currency=EUR",
    )
    async with open_api_stack(corpus, priced) as stack:
        trace = (await stack.ask(ALLOWANCE_QUESTION))["trace"]
        usage = {item["task"]: item for item in trace["usage"]}
        chat = usage["answer"]["input_tokens"] * 10 + usage["answer"]["output_tokens"] * 30
        assert usage["rerank"]["cost"] == 0.002 and usage["embed"]["cost"] == 0
        assert trace["cost"] == pytest.approx(0.002 + chat / 1e6) and trace["currency"] == "EUR"
        stack.fake.requests.clear()
        budget = {"search_calls": 0, "cost": 0}
        # Another question, whose embedding is not cached.
        answer = await stack.ask(DEADLINE_QUESTION, overrides={"budget": budget})
        assert stack.fake.requests == [] and "540 dias" in answer["answer"].replace("**", "")
        assert {(item["cap"], item["task"]) for item in answer["trace"]["stopped"]} == {
            ("search_calls", "embed"),
            ("search_calls", "rerank"),
            ("cost", "answer"),
        }
        assert answer["trace"]["channels_failed"]["semantic"].startswith("BUDGET_EXCEEDED")
        assert answer["trace"]["cost"] == answer["trace"]["model_calls"] == 0
        # A request cannot raise the caps of the profile.
        refused = await stack.http.post(
            "/v1/query", json={"query": ALLOWANCE_QUESTION, "overrides": {"budget": {"calls": 4}}}
        )
        assert (refused.status_code, refused.json()["code"]) == (422, "FIXED_SETTING")
        assert stack.fake.requests == []


async def test_results_are_in_reranker_order(stack: ApiStack) -> None:
    found = (
        await stack.http.post("/v1/search", json={"query": "daily allowance", "explain": True})
    ).json()
    scores = [result["explanation"]["rerank_score"] for result in found["results"]]
    assert (
        scores == sorted(scores, reverse=True) == [result["score"] for result in found["results"]]
    )
    assert scores[0] == 1.0 and found["trace"]["reranker"] == "fake-rerank"


@pytest.mark.parametrize(
    ("fault", "profile"),
    [
        ({"status": 503}, "default"),
        ({"nan": True}, "default"),
        ({"hang": True}, "quick-rerank"),
    ],
)
async def test_failing_rerank_server_keeps_fused_order_and_is_traced(
    stack: ApiStack, corpus: IndexedCorpus, fault: dict[str, Any], profile: str
) -> None:
    stack.fake.fail(on="rerank", times=9, **fault)
    answer = await stack.ask(ALLOWANCE_QUESTION, profile=profile)
    assert not answer["refused"] and "74 euros" in answer["answer"]
    trace = answer["trace"]
    assert (trace["reranker"], trace["max_rerank_score"], trace["channels_failed"]) == (
        None,
        None,
        {},
    )
    assert [note for note in trace["notes"] if note.startswith("not reranked: ")]
    scores = [context["score"] for context in answer["contexts"]]
    assert scores == sorted(scores, reverse=True)
    assert_citations_match_corpus(answer, corpus)


@pytest.mark.parametrize(
    ("fault", "profile"),
    [
        ({"status": 500}, "default"),
        ({"wrong_dimension": True}, "default"),
        ({"hang": True}, "quick-semantic"),
    ],
)
async def test_failing_embedding_server_leaves_lexical_and_graph_channels(
    stack: ApiStack, corpus: IndexedCorpus, fault: dict[str, Any], profile: str
) -> None:
    stack.fake.fail(on="embeddings", times=9, **fault)
    answer = await stack.ask(ALLOWANCE_QUESTION, profile=profile)
    assert not answer["refused"] and "74 euros" in answer["answer"]
    trace = answer["trace"]
    assert list(trace["channels_failed"]) == ["semantic"]
    assert trace["channels_used"] == [name for name in DEFAULT_CHANNELS if name != "semantic"]
    assert answer["confidence"]["level"] == "low" and "embed" not in answer["trace"]["models"]
    assert any("semantic" in line for line in answer["limitations"])
    assert_citations_match_corpus(answer, corpus)


async def test_lexical_search_answers_when_all_model_servers_fail(
    stack: ApiStack, corpus: IndexedCorpus
) -> None:
    stack.fake.fail(times=99, status=503)
    answer = await stack.ask(ALLOWANCE_QUESTION)
    assert "74 euros" in answer["answer"].replace("**", "") and answer["trace"]["models"] == {
        "answer": "extractive"
    }
    assert_citations_match_corpus(answer, corpus)


async def test_graph_contains_only_extractions_present_in_text(stack: ApiStack) -> None:
    entities = (await stack.http.get("/v1/entities")).json()["items"]
    assert {entity["name"] for entity in entities} == {"Norte Energia S.A.", "Lisbon"}
    lisbon = next(entity for entity in entities if entity["name"] == "Lisbon")
    details = (await stack.http.get(f"/v1/entities/{lisbon['id']}")).json()
    assert [(claim["property"], claim["value"]) for claim in details["claims"]] == [
        ("daily allowance", "74 euros")
    ]
    answer = await stack.ask("What is the daily allowance of Norte Energia S.A. in Lisbon?")
    assert answer["trace"]["channels"]["graph"]["returned"] > 0


async def test_hanging_chat_requests_do_not_block_other_queries(
    stack: ApiStack, corpus: IndexedCorpus
) -> None:
    """Four different queries at once exceed the number of connections."""
    corpus.fake.fail(on="completions", times=4, hang=True)
    waiting = [asyncio.create_task(stack.ask(ALLOWANCE_QUESTION, k=k)) for k in range(1, 5)]
    await eventually(lambda: len(stack.chat_requests) >= 4)
    assert (await stack.ask(DEADLINE_QUESTION))["trace"]["models"]["answer"] == "fake-chat"
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
