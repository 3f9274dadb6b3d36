"""What is asked again and again: found in memory while nothing changed, and never after."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from anabranch.composition import remembering
from retrieval.pipeline import Retriever
from retrieval.remembered import PATIENCE_S, Outcome, RememberedAnswers, RememberedQuestions
from schemas.errors import DatabaseUnavailable, EngineUnavailable
from schemas.events import QueryAnswered, QueryReceived
from schemas.ports.engines import ChatReply, Embedded, Hear
from schemas.ports.search import Standing
from schemas.questions import QueryRequest, QueryResponse, SearchRequest
from tests.callers import LOCAL, caller
from tests.unit.retrieval_corpus import STAFF, House, house
from tests.unit.retrieval_fakes import ScriptedChat

COST = "How much does the replacement of the bearing cost?"
KEEPS = timedelta(seconds=60)


class Hours:
    """A clock that stands until it is put forward."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


async def test_vectors_of_questions_are_kept_for_one_tenant_and_its_readers() -> None:
    """How fast a question is answered must not tell that somebody else has asked it."""
    uses: list[str] = []
    questions = RememberedQuestions(house().embedder, most=16, note=lambda cache, use: uses.append(use))
    callers = [caller(tenant, readers=readers) for tenant in ("acme", "bolt") for readers in (None, (), ("user:ana",), ("user:ana", "group:finance"))]
    for _ in range(2):
        for who in callers:
            await questions.embed_query(who, COST)
    assert uses == ["miss"] * len(callers) + ["hit"] * len(callers)
    await questions.embed_query(caller("acme", name="jwt:somebody", readers=("group:finance", "user:ana")), COST)
    assert uses[-1] == "hit", "of the same names, in whatever order"


class Hanging(ScriptedChat):
    """Never answers."""

    asked = 0

    async def ask(self, system: str, user: str, schema: Mapping[str, Any], *, name: str, hear: Hear | None = None) -> ChatReply:
        self.asked += 1
        await asyncio.Event().wait()
        raise AssertionError("it never comes to that")


class Desk:
    """A house whose retriever remembers."""

    def __init__(self, built: House, most: int = 8, patience_s: float = PATIENCE_S) -> None:
        self.house, self.clock = built, Hours()
        self.uses: Counter[str] = Counter()
        self.answers = RememberedAnswers(built.index, self.clock, most=most, keeps=KEEPS, note=self._note, patience_s=patience_s)
        self.retriever: Retriever = built.retriever(answers=self.answers, questions=RememberedQuestions(built.embedder, most=2, note=self._note))
        self._runs = 0

    def _note(self, cache: str, use: str) -> None:
        self.uses[f"{cache} {use}"] += 1

    async def ask(
        self, question: str = COST, *, tenant: str = "default", readers: tuple[str, ...] | None = None, generation: str = "g1", **options: object
    ) -> QueryResponse:
        self._runs += 1
        request = QueryRequest.model_validate({"query": question, **options})
        return await self.retriever.query(caller(tenant, readers=readers), request, UUID(int=self._runs), generation=generation)


async def test_what_is_asked_for_the_third_time_is_answered_without_a_look() -> None:
    desk = Desk(house())
    first, second = await desk.ask(), await desk.ask()
    looks = Counter(desk.house.index.asked)
    third = await desk.ask()
    assert desk.house.index.asked == looks
    assert not first.trace.cached and not second.trace.cached and third.trace.cached
    assert (third.answer, third.citations, third.contexts, third.code) == (first.answer, first.citations, first.contexts, first.code)


async def test_an_answer_from_memory_is_a_run_of_its_own_with_all_that_it_was_made_from() -> None:
    desk = Desk(house())
    responses = [await desk.ask() for _ in range(3)]
    facts = [event for event in desk.house.published if isinstance(event, QueryAnswered)]
    assert [fact.run_id for fact in facts] == [response.run_id for response in responses] == [UUID(int=1), UUID(int=2), UUID(int=3)]
    assert sum(isinstance(event, QueryReceived) for event in desk.house.published) == 3
    assert facts[2].response == responses[2].model_dump(mode="json")
    assert responses[2].trace.channels == responses[1].trace.channels and responses[2].trace.route == responses[1].trace.route
    assert responses[2].trace.timings_ms.keys() == {"plan", "total"}, "of what was done for this answer"
    assert (facts[2].candidates, facts[2].numbers, facts[2].basis) == (facts[1].candidates, facts[1].numbers, facts[1].basis)


async def test_of_a_question_that_was_asked_once_the_answer_is_not_held() -> None:
    desk = Desk(house())
    once = weakref.ref(await desk.ask())
    gc.collect()
    assert once() is None and len(desk.answers) == 1
    twice = weakref.ref(await desk.ask())
    gc.collect()
    assert twice() is not None


async def test_a_change_of_the_index_is_seen_by_the_next_question() -> None:
    desk = Desk(house())
    for _ in range(3):
        await desk.ask("Who keeps the training records?")
    desk.house.index.state = "2"
    again = await desk.ask("Who keeps the training records?")
    assert not again.trace.cached and desk.uses["answers stale"] == 1
    assert not (await desk.ask("Who keeps the training records?")).trace.cached, "it has to become hot once more"


async def test_a_change_between_the_first_asking_and_the_second_begins_the_counting_anew() -> None:
    desk = Desk(house())
    await desk.ask()
    desk.house.index.state = "2"
    assert [(await desk.ask()).trace.cached for _ in range(3)] == [False, False, True]


async def test_what_many_ask_at_once_is_looked_for_once() -> None:
    desk = Desk(house())
    answers = await asyncio.gather(*(desk.ask() for _ in range(10)))
    assert desk.house.index.asked["snapshot"] == 1
    assert sum(answer.trace.cached for answer in answers) == 9 and len({answer.run_id for answer in answers}) == 10
    assert len({answer.answer for answer in answers}) == 1


async def test_whoever_waited_for_another_that_failed_asks_for_itself() -> None:
    desk = Desk(house())
    desk.house.index.broken = dict.fromkeys(("lexical", "semantic", "link"), EngineUnavailable("away"))
    found = await asyncio.gather(*(desk.ask() for _ in range(3)), return_exceptions=True)
    assert [type(one) for one in found] == [EngineUnavailable] * 3 and desk.house.index.asked["snapshot"] == 3
    desk.house.index.broken = {}
    assert (await desk.ask()).answer


async def test_whoever_waited_in_vain_takes_what_others_found_meanwhile() -> None:
    desk = Desk(house(), patience_s=0.05)
    response = await desk.ask()
    [fact] = [event for event in desk.house.published if isinstance(event, QueryAnswered)]
    outcome, asked = Outcome(response, fact, Standing("default", "g1", "1")), 0

    async def hang() -> Outcome[QueryResponse]:
        await asyncio.Event().wait()
        return outcome

    async def answer() -> Outcome[QueryResponse]:
        nonlocal asked
        asked += 1
        return outcome

    key = ("default", "null", "g1", "query", "{}")
    hanging = asyncio.create_task(desk.answers.answer(key, QueryResponse, hang))
    await asyncio.sleep(0)
    earlier = [asyncio.create_task(desk.answers.answer(key, QueryResponse, answer)) for _ in range(2)]
    await asyncio.sleep(0.01)
    _, remembered = await desk.answers.answer(key, QueryResponse, answer)
    assert remembered and asked == 2 and not any([(await one)[1] for one in earlier])
    hanging.cancel()
    await asyncio.gather(hanging, return_exceptions=True)


async def test_a_change_that_a_waiter_notices_begins_the_counting_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(house())
    unchanged = desk.house.index.unchanged

    async def later(standings: Sequence[Standing]) -> list[bool]:
        desk.house.index.state = "2"
        return await unchanged(standings)

    monkeypatch.setattr(desk.house.index, "unchanged", later)
    await asyncio.gather(desk.ask(), desk.ask())
    assert not (await desk.ask()).trace.cached, "answered once since the change"


async def test_nobody_waits_for_another_where_the_last_answer_was_not_to_be_kept() -> None:
    built = house()
    built.chat = ScriptedChat(EngineUnavailable("away"))
    desk = Desk(built)
    await desk.ask()
    built.chat = Hanging({})
    desk.retriever = built.retriever(answers=desk.answers)
    await each_asks_the_model(desk, 3)
    built.chat = None
    desk.retriever = built.retriever(answers=desk.answers)
    await desk.ask()
    looks = built.index.asked["snapshot"]
    desk.house.index.state = "2"
    await asyncio.gather(*(desk.ask() for _ in range(3)))
    assert built.index.asked["snapshot"] == looks + 1, "one is waited for again since an answer was kept"


async def test_that_an_answer_was_not_to_be_kept_is_forgotten_in_time_and_with_too_many_others() -> None:
    built = house()
    built.index.broken = dict.fromkeys(("lexical", "semantic", "link"), EngineUnavailable("away"))
    desk = Desk(built, most=2)
    questions = ["What is one?", "What is two?", "What is three?"]
    await asyncio.gather(*map(desk.ask, questions), return_exceptions=True)
    built.index.broken = {}
    looked = built.index.asked["snapshot"]
    await asyncio.gather(*(desk.ask(questions[0]) for _ in range(3)))
    assert built.index.asked["snapshot"] == looked + 1
    desk.clock.now += KEEPS
    await desk.answers.tidy()
    looked = built.index.asked["snapshot"]
    await asyncio.gather(*(desk.ask(questions[2]) for _ in range(3)))
    assert built.index.asked["snapshot"] == looked + 1


async def test_nobody_waits_for_ever_for_another_that_hangs() -> None:
    built = house()
    built.chat = Hanging({})
    await each_asks_the_model(Desk(built, patience_s=0.0), 2)


async def each_asks_the_model(desk: Desk, askers: int) -> None:
    """At once, though it answers nobody."""
    chat = desk.house.chat
    assert isinstance(chat, Hanging)
    waiting = [asyncio.create_task(desk.ask()) for _ in range(askers)]
    async with asyncio.timeout(5):
        while chat.asked < askers:
            await asyncio.sleep(0)
    for one in waiting:
        one.cancel()
    assert all(isinstance(one, asyncio.CancelledError) for one in await asyncio.gather(*waiting, return_exceptions=True))


async def test_whoever_waited_is_answered_anew_where_the_index_has_changed_meanwhile() -> None:
    desk = Desk(house())
    first = asyncio.create_task(desk.ask())
    while not desk.house.index.asked["snapshot"]:
        await asyncio.sleep(0)
    desk.house.index.state = "2"
    later = await desk.ask()
    assert not (await first).trace.cached and not later.trace.cached and desk.house.index.asked["snapshot"] == 2


async def test_what_no_longer_holds_leaves_the_memory_though_nobody_asks() -> None:
    desk = Desk(house())
    await desk.ask()
    await desk.answers.tidy()
    assert len(desk.answers) == 1
    desk.house.index.state = "2"
    await desk.answers.tidy()
    assert len(desk.answers) == 0


async def test_nothing_is_kept_that_cannot_be_compared_with_the_tables() -> None:
    desk = Desk(house())
    await desk.ask()
    desk.house.index.broken["unchanged"] = DatabaseUnavailable("away")
    await desk.answers.tidy()
    assert len(desk.answers) == 0


async def test_whatever_the_tables_raise_nothing_is_kept_and_tidying_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(house())
    await desk.ask()
    desk.house.index.broken["unchanged"] = RuntimeError("the database has another name now")
    with pytest.raises(RuntimeError):
        await desk.answers.tidy()
    assert len(desk.answers) == 0
    await desk.ask()
    monkeypatch.setattr(remembering, "TIDY_S", 0.0)
    tidying = asyncio.create_task(remembering.tidied(desk.answers))
    while len(desk.answers):
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not tidying.done()
    tidying.cancel()
    await asyncio.gather(tidying, return_exceptions=True)


async def test_an_answer_is_remembered_for_so_long_and_no_longer() -> None:
    desk = Desk(house())
    for _ in range(3):
        await desk.ask()
    desk.clock.now += KEEPS
    assert not (await desk.ask()).trace.cached


@pytest.mark.parametrize(
    "other", [{"k": 3}, {"tenant": "other"}, {"readers": ("user:ana",)}, {"generation": "g2"}, {"profile": "default", "explain": True}, {"debug": True}]
)
async def test_another_request_is_another_question(other: dict[str, object]) -> None:
    desk = Desk(house())
    for _ in range(3):
        await desk.ask()
    assert not (await desk.ask(**other)).trace.cached  # type: ignore[arg-type]


async def test_a_search_and_a_query_of_the_same_words_are_two_questions() -> None:
    desk = Desk(house())
    for run in range(3):
        found = await desk.retriever.search(LOCAL, SearchRequest(query=COST), UUID(int=run), generation="g1")
    assert found.trace.cached and not (await desk.ask()).trace.cached


async def test_the_least_recently_asked_goes_first() -> None:
    desk = Desk(house(), most=2)
    for _ in range(3):
        await desk.ask()
    await desk.ask("When does the lease of the warehouse end?")
    await desk.ask()
    await desk.ask("Who keeps the training records?")
    assert (await desk.ask()).trace.cached and len(desk.answers) == 2


def _without_embedder(built: House) -> None:
    built.embedder.away = True


def _without_graph(built: House) -> None:
    built.index.broken["link"] = EngineUnavailable("away")


def _without_reranker(built: House) -> None:
    assert built.reranker is not None
    built.reranker.away = True


def _without_chat(built: House) -> None:
    built.chat = ScriptedChat(EngineUnavailable("away"))


def _without_some_states(built: House) -> None:
    del built.blobs.data["states/staff"]


@pytest.mark.parametrize("lose", [_without_embedder, _without_graph, _without_reranker, _without_chat, _without_some_states])
async def test_an_answer_that_something_was_lost_to_is_not_remembered(lose: Callable[[House], None]) -> None:
    built = house()
    built.add("staff-2", STAFF)
    lose(built)
    desk = Desk(built)
    for _ in range(4):
        assert not (await desk.ask("Who keeps the training records of Harbour Estates?")).trace.cached
    assert desk.uses["answers hit"] == 0 and len(desk.answers) == 0


async def test_an_answer_that_no_engine_was_asked_for_has_lost_none() -> None:
    built = house()
    built.reranker = None
    desk = Desk(built)
    answers = [await desk.ask(channels=["lexical"]) for _ in range(3)]
    assert [answer.trace.cached for answer in answers] == [False, False, True] and answers[0].answer and not answers[0].refused


async def test_an_answer_whose_sentences_no_engine_could_compare_is_not_remembered() -> None:
    built = house()
    desk = Desk(built)
    built.embedder.embed = _away  # type: ignore[method-assign]
    for _ in range(4):
        answer = await desk.ask()
        assert answer.answer and not answer.trace.cached


async def _away(texts: Sequence[str]) -> list[Embedded]:
    raise EngineUnavailable("the embedder does not answer")


async def test_a_streamed_answer_is_made_as_it_is_told() -> None:
    desk = Desk(house())
    for _ in range(4):
        assert not (await desk.ask(stream=True)).trace.cached


async def test_a_rehearsal_asks_engines_and_index_each_time() -> None:
    desk = Desk(house())
    for _ in range(3):
        await desk.ask()
    before = desk.house.index.asked["snapshot"]
    rehearsed = await desk.retriever.rehearse(LOCAL, QueryRequest(query=COST, generation="g1"))
    assert not rehearsed.trace.cached and desk.house.index.asked["snapshot"] == before + 1
    assert desk.uses["question_embeddings hit"] == 1, "the second asking, and no rehearsal"


async def test_a_question_is_embedded_once_whatever_else_is_asked_with_it() -> None:
    desk = Desk(house())
    await desk.ask()
    desk.house.index.state = "2"
    again = await desk.ask(k=3)
    assert desk.uses["question_embeddings miss"] == 1 and desk.uses["question_embeddings hit"] == 1
    fresh = await Desk(house()).ask(k=3)
    assert [(result.chunk_id, result.score) for result in again.contexts] == [(result.chunk_id, result.score) for result in fresh.contexts]


async def test_so_many_vectors_of_questions_are_kept() -> None:
    desk = Desk(house())
    for question in ("one thing", "another thing", "a third thing", "one thing"):
        await desk.ask(question)
    assert desk.uses["question_embeddings hit"] == 0
