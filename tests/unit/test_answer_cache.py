"""Answer cache: answers are reused while the index is unchanged, and never afterwards."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from retrieval.ranking.query_context import QueryEmbeddingCache
from retrieval.retriever import Retriever
from retrieval.runs import answer_cache
from retrieval.runs.answer_cache import AnswerCache
from retrieval.runs.run_record import QueryOutcome
from schemas.errors import DatabaseUnavailable, EngineUnavailable
from schemas.events import QueryAnswered, QueryReceived
from schemas.ports.engines import (
    DEFAULT_CHAT_OPTIONS,
    ChatOptions,
    ChatReply,
    OnDelta,
    TextEmbedding,
)
from schemas.ports.search import SnapshotVersion
from schemas.questions import QueryRequest, QueryResponse, SearchRequest
from services.query import retriever_pool
from tests.support.api_client import LOCAL_CALLER, make_caller
from tests.support.eventually import eventually
from tests.unit.retrieval_fakes import ScriptedChat
from tests.unit.retrieval_harness import COST_QUESTION, STAFF, RetrievalHarness, make_harness

CACHE_TTL = timedelta(seconds=60)


class ManualClock:
    """A clock that the test advances."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


async def test_question_embeddings_are_cached_per_tenant_and_readers() -> None:
    """The response time must not reveal that another caller has sent the question."""
    uses: list[str] = []
    questions = QueryEmbeddingCache(
        make_harness().embedder, max_entries=16, on_use=lambda cache, use: uses.append(use)
    )
    callers = [
        make_caller(tenant, readers=readers)
        for tenant in ("acme", "bolt")
        for readers in (None, (), ("user:ana",), ("user:ana", "group:finance"))
    ]
    for _ in range(2):
        for who in callers:
            await questions.embed_query(who, COST_QUESTION)
    assert uses == ["miss"] * len(callers) + ["hit"] * len(callers)
    await questions.embed_query(
        make_caller("acme", name="jwt:somebody", readers=("group:finance", "user:ana")),
        COST_QUESTION,
    )
    assert uses[-1] == "hit", "of the same names, in whatever order"


class HangingChat(ScriptedChat):
    """Never answers."""

    call_count = 0

    async def complete(
        self,
        system: str,
        user: str,
        schema: Mapping[str, Any],
        *,
        name: str,
        on_delta: OnDelta | None = None,
        options: ChatOptions = DEFAULT_CHAT_OPTIONS,
    ) -> ChatReply:
        self.call_count += 1
        await asyncio.Event().wait()
        raise AssertionError("it never comes to that")


class CachedRetriever:
    """A retriever with an answer cache."""

    def __init__(self, built: RetrievalHarness, most: int = 8) -> None:
        self.harness, self.clock = built, ManualClock()
        self.uses: Counter[str] = Counter()
        self.answers = AnswerCache(
            built.index, self.clock, max_entries=most, ttl=CACHE_TTL, on_use=self._note
        )
        self.retriever: Retriever = built.make_retriever(
            answers=self.answers,
            questions=QueryEmbeddingCache(built.embedder, max_entries=2, on_use=self._note),
        )
        self._runs = 0

    def _note(self, cache: str, use: str) -> None:
        self.uses[f"{cache} {use}"] += 1

    async def ask(
        self,
        question: str = COST_QUESTION,
        *,
        tenant: str = "default",
        readers: tuple[str, ...] | None = None,
        generation: str = "g1",
        **options: object,
    ) -> QueryResponse:
        self._runs += 1
        request = QueryRequest.model_validate({"query": question, **options})
        return await self.retriever.query(
            make_caller(tenant, readers=readers),
            request,
            UUID(int=self._runs),
            generation=generation,
        )


async def test_second_identical_query_is_a_cache_hit() -> None:
    retriever = CachedRetriever(make_harness())
    first = await retriever.ask()
    looks = Counter(retriever.harness.index.call_counts)
    second = await retriever.ask()
    assert retriever.harness.index.call_counts == looks
    assert not first.trace.cached and second.trace.cached
    assert (second.answer, second.citations, second.contexts, second.code) == (
        first.answer,
        first.citations,
        first.contexts,
        first.code,
    )


async def test_cached_answer_is_recorded_as_a_full_run() -> None:
    retriever = CachedRetriever(make_harness())
    responses = [await retriever.ask() for _ in range(3)]
    events = [
        event for event in retriever.harness.published_events if isinstance(event, QueryAnswered)
    ]
    assert (
        [answered_event.run_id for answered_event in events]
        == [response.run_id for response in responses]
        == [UUID(int=1), UUID(int=2), UUID(int=3)]
    )
    assert (
        sum(isinstance(event, QueryReceived) for event in retriever.harness.published_events) == 3
    )
    assert events[2].response == responses[2].model_dump(mode="json")
    assert (
        responses[2].trace.channels == responses[1].trace.channels
        and responses[2].trace.route == responses[1].trace.route
    )
    assert responses[2].trace.timings_ms.keys() == {"plan", "total"}, (
        "of what was done for this answer"
    )
    assert (events[2].candidates, events[2].numbers, events[2].run_record) == (
        events[1].candidates,
        events[1].numbers,
        events[1].run_record,
    )


async def test_index_change_invalidates_cached_answer() -> None:
    retriever = CachedRetriever(make_harness())
    for _ in range(3):
        await retriever.ask("Who keeps the training records?")
    retriever.harness.index.state = "2"
    again = await retriever.ask("Who keeps the training records?")
    assert not again.trace.cached and retriever.uses["answers stale"] == 1
    assert (await retriever.ask("Who keeps the training records?")).trace.cached


async def test_concurrent_identical_queries_are_coalesced() -> None:
    retriever = CachedRetriever(make_harness())
    answers = await asyncio.gather(*(retriever.ask() for _ in range(10)))
    assert retriever.harness.index.call_counts["snapshot"] == 1
    assert (
        sum(answer.trace.cached for answer in answers) == 9
        and len({answer.run_id for answer in answers}) == 10
    )
    assert len({answer.answer for answer in answers}) == 1


async def test_coalesced_query_retries_after_leader_fails() -> None:
    retriever = CachedRetriever(make_harness())
    retriever.harness.index.channel_errors = {"snapshot": EngineUnavailable("away")}
    found = await asyncio.gather(*(retriever.ask() for _ in range(3)), return_exceptions=True)
    assert [type(one) for one in found] == [
        EngineUnavailable
    ] * 3 and retriever.harness.index.call_counts["snapshot"] == 3
    retriever.harness.index.channel_errors = {}
    assert (await retriever.ask()).answer


async def test_timed_out_waiter_uses_answer_cached_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(answer_cache, "DUPLICATE_WAIT_S", 0.05)
    retriever = CachedRetriever(make_harness())
    response = await retriever.ask()
    [answered_event] = [
        event for event in retriever.harness.published_events if isinstance(event, QueryAnswered)
    ]
    outcome, n_calls = (
        QueryOutcome(response, answered_event, SnapshotVersion("default", "g1", "1")),
        0,
    )

    async def hang() -> QueryOutcome:
        await asyncio.Event().wait()
        return outcome

    async def answer() -> QueryOutcome:
        nonlocal n_calls
        n_calls += 1
        return outcome

    key = ("default", "null", "g1", "query", "{}")
    hanging = asyncio.create_task(retriever.answers.get_or_answer(key, hang))
    await asyncio.sleep(0)
    earlier = [asyncio.create_task(retriever.answers.get_or_answer(key, answer)) for _ in range(2)]
    await asyncio.sleep(0.01)
    _, cached = await retriever.answers.get_or_answer(key, answer)
    assert cached and n_calls == 1 and sum([(await one)[1] for one in earlier]) == 1
    hanging.cancel()
    await asyncio.gather(hanging, return_exceptions=True)


async def test_waiting_for_hanging_query_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_cache, "DUPLICATE_WAIT_S", 0.0)
    built, chat = make_harness(), HangingChat({})
    built.chat = chat
    retriever = CachedRetriever(built)
    waiting = [asyncio.create_task(retriever.ask()) for _ in range(2)]
    # Every query calls the model, which never answers.
    await eventually(lambda: chat.call_count >= 2)
    for one in waiting:
        one.cancel()
    found = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(one, asyncio.CancelledError) for one in found)


async def test_coalesced_query_reruns_after_index_change() -> None:
    retriever = CachedRetriever(make_harness())
    first = asyncio.create_task(retriever.ask())
    await eventually(lambda: retriever.harness.index.call_counts["snapshot"])
    retriever.harness.index.state = "2"
    later = await retriever.ask()
    assert (
        not (await first).trace.cached
        and not later.trace.cached
        and retriever.harness.index.call_counts["snapshot"] == 2
    )


async def test_stale_and_unverified_answers_are_evicted_by_cleanup() -> None:
    retriever = CachedRetriever(make_harness())
    await retriever.ask()
    await retriever.answers.evict_stale()
    assert len(retriever.answers) == 1
    retriever.harness.index.state = "2"
    await retriever.answers.evict_stale()
    assert len(retriever.answers) == 0
    await retriever.ask()
    retriever.harness.index.channel_errors["unchanged"] = DatabaseUnavailable("away")
    await retriever.answers.evict_stale()
    assert len(retriever.answers) == 0


async def test_cleanup_task_survives_unexpected_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    retriever = CachedRetriever(make_harness())
    await retriever.ask()
    retriever.harness.index.channel_errors["unchanged"] = RuntimeError(
        "the database has another name now"
    )
    with pytest.raises(RuntimeError):
        await retriever.answers.evict_stale()
    assert len(retriever.answers) == 0
    await retriever.ask()
    monkeypatch.setattr(retriever_pool, "INVALIDATION_INTERVAL_S", 0.0)
    tidying = asyncio.create_task(retriever_pool.invalidate_periodically(retriever.answers))
    await eventually(lambda: not len(retriever.answers))
    assert not tidying.done()
    tidying.cancel()
    await asyncio.gather(tidying, return_exceptions=True)


async def test_cached_answer_expires() -> None:
    retriever = CachedRetriever(make_harness())
    for _ in range(3):
        await retriever.ask()
    retriever.clock.now += CACHE_TTL
    assert not (await retriever.ask()).trace.cached


@pytest.mark.parametrize(
    "other",
    [
        {"k": 3},
        {"tenant": "other"},
        {"readers": ("user:ana",)},
        {"generation": "g2"},
        {"profile": "default", "explain": True},
        {"debug": True},
    ],
)
async def test_cache_key_includes_every_request_option(other: dict[str, object]) -> None:
    retriever = CachedRetriever(make_harness())
    for _ in range(3):
        await retriever.ask()
    retriever.harness.index.others = {"g2": retriever.harness.index}
    assert not (await retriever.ask(**other)).trace.cached  # type: ignore[arg-type]


async def test_search_and_query_have_separate_cache_entries() -> None:
    retriever = CachedRetriever(make_harness())
    for run in range(3):
        found = await retriever.retriever.search(
            LOCAL_CALLER, SearchRequest(query=COST_QUESTION), UUID(int=run), generation="g1"
        )
    assert found.trace.cached and not (await retriever.ask()).trace.cached


async def test_least_recently_used_answer_is_evicted() -> None:
    retriever = CachedRetriever(make_harness(), most=2)
    for _ in range(3):
        await retriever.ask()
    await retriever.ask("When does the lease of the warehouse end?")
    await retriever.ask()
    await retriever.ask("Who keeps the training records?")
    assert (await retriever.ask()).trace.cached and len(retriever.answers) == 2


def _disable_embedder(built: RetrievalHarness) -> None:
    built.embedder.unavailable = True


def _disable_graph(built: RetrievalHarness) -> None:
    built.index.channel_errors["link"] = EngineUnavailable("away")


def _disable_reranker(built: RetrievalHarness) -> None:
    assert built.reranker is not None
    built.reranker.unavailable = True


def _disable_chat(built: RetrievalHarness) -> None:
    built.chat = ScriptedChat(EngineUnavailable("away"))


def _remove_token_states(built: RetrievalHarness) -> None:
    del built.blobs.data["states/staff"]


@pytest.mark.parametrize(
    "lose",
    [_disable_embedder, _disable_graph, _disable_reranker, _disable_chat, _remove_token_states],
)
async def test_degraded_answer_is_not_cached(lose: Callable[[RetrievalHarness], None]) -> None:
    built = make_harness()
    built.add("staff-2", STAFF)
    lose(built)
    retriever = CachedRetriever(built)
    for _ in range(4):
        assert not (
            await retriever.ask("Who keeps the training records of Harbour Estates?")
        ).trace.cached
    assert retriever.uses["answers hit"] == 0 and len(retriever.answers) == 0


async def test_answer_needing_no_engine_is_cached() -> None:
    built = make_harness()
    built.reranker = None
    retriever = CachedRetriever(built)
    answers = [await retriever.ask(channels=["lexical"]) for _ in range(3)]
    assert (
        [answer.trace.cached for answer in answers] == [False, True, True]
        and answers[0].answer
        and not answers[0].refused
    )


async def test_answer_without_sentence_embeddings_is_not_cached() -> None:
    built = make_harness()
    retriever = CachedRetriever(built)
    built.embedder.embed = _embedder_unavailable  # type: ignore[method-assign]
    for _ in range(4):
        answer = await retriever.ask()
        assert answer.answer and not answer.trace.cached


async def _embedder_unavailable(texts: Sequence[str]) -> list[TextEmbedding]:
    raise EngineUnavailable("the embedder does not answer")


async def test_streamed_answer_is_not_cached() -> None:
    retriever = CachedRetriever(make_harness())
    for _ in range(4):
        assert not (await retriever.ask(stream=True)).trace.cached


async def test_dry_run_bypasses_cache() -> None:
    retriever = CachedRetriever(make_harness())
    for _ in range(3):
        await retriever.ask()
    before = retriever.harness.index.call_counts["snapshot"]
    rehearsed = await retriever.retriever.dry_run(
        LOCAL_CALLER, QueryRequest(query=COST_QUESTION, generation="g1")
    )
    assert (
        not rehearsed.trace.cached and retriever.harness.index.call_counts["snapshot"] == before + 1
    )
    assert retriever.uses["question_embeddings hit"] == 0


async def test_question_embedding_is_reused_across_requests() -> None:
    retriever = CachedRetriever(make_harness())
    await retriever.ask()
    retriever.harness.index.state = "2"
    again = await retriever.ask(k=3)
    assert (
        retriever.uses["question_embeddings miss"] == 1
        and retriever.uses["question_embeddings hit"] == 1
    )
    fresh = await CachedRetriever(make_harness()).ask(k=3)
    assert [(result.chunk_id, result.score) for result in again.contexts] == [
        (result.chunk_id, result.score) for result in fresh.contexts
    ]


async def test_question_embedding_cache_is_bounded() -> None:
    retriever = CachedRetriever(make_harness())
    for question in ("one thing", "another thing", "a third thing", "one thing"):
        await retriever.ask(question)
    assert retriever.uses["question_embeddings hit"] == 0
