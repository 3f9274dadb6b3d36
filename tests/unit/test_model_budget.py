"""Model calls of a question are counted, priced, and stopped by the caps of its profile."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from retrieval.ranking.query_context import ModelBudget
from retrieval.runs.answer_cache import AnswerCache
from schemas.budgets import BudgetProfile, ModelPrice, ModelUsage, PriceTable
from schemas.errors import BudgetExceeded, EngineUnavailable
from schemas.planning import PlanProfile
from schemas.ports.engines import ChatUsage
from schemas.ports.metering import PlannedCall, meter_call, use_meter
from schemas.profiles import CheckProfile, JudgeProfile, Profile
from schemas.questions import QueryRequest, QueryResponse
from tests.support.api_client import LOCAL_CALLER
from tests.unit.retrieval_fakes import ScriptedChat, SteppingClock, write_reply
from tests.unit.retrieval_harness import COST_QUESTION, RUN_ID, RetrievalHarness, make_harness

PLAN = {
    "intent": "factoid", "keywords": ["replacement", "bearing", "costs"], "semantic_query": "",
    "date_from": "", "date_to": "", "tags": [],
    "weights": {"lexical": 1, "semantic": 1, "graph": 1},
    "k": {"lexical": 0, "semantic": 0, "graph": 0},
}  # fmt: skip
ANSWER = write_reply(("The replacement of the bearing costs 18,740 euros.", [1]))
REVIEW = {
    name: {"score": 1.0, "evidence": ""} for name in JudgeProfile.model_fields
    if isinstance(getattr(JudgeProfile(), name), CheckProfile)
}  # fmt: skip
PRICES = PriceTable(
    currency="EUR",
    models={
        "planner": ModelPrice(per_call=0.01),
        "writer": ModelPrice(input_per_million=10, output_per_million=100),
        "judge": ModelPrice(),
    },
)
ANSWER_COST = (100 * 10 + 20 * 100) / 1e6
ANSWER_BOUND = (1000 * 10 + 500 * 100) / 1e6


def call(task: str = "answer", model: str = "m", tokens: tuple[int, int] = (10, 5)) -> PlannedCall:
    return PlannedCall(task, model, *tokens)


def spend(budget: ModelBudget, planned: PlannedCall, usage: ChatUsage | None) -> None:
    budget.reserve(planned)
    budget.charge(planned, usage)


@pytest.mark.parametrize(
    ("cap", "task"),
    [
        ("calls", "plan"),
        ("calls", "route"),
        ("calls", "answer"),
        ("judge_calls", "judge"),
        ("search_calls", "embed"),
        ("search_calls", "rerank"),
    ],
)
def test_number_of_calls_is_capped_by_task(cap: str, task: str) -> None:
    budget = ModelBudget(BudgetProfile.model_validate({cap: 2}))
    budget.reserve(call(task))
    spend(budget, call(task), ChatUsage(1, 1))
    with pytest.raises(BudgetExceeded, match=rf"budget\.{cap} .* allows 2 calls"):
        budget.reserve(call(task))
    (stopped,) = budget.stopped
    assert (stopped.cap, stopped.limit, stopped.task, stopped.model) == (cap, 2, task, "m")
    assert [item.calls for item in budget.list_usage()] == [1]


def test_bounds_of_calls_in_flight_count_toward_the_tokens() -> None:
    budget = ModelBudget(BudgetProfile(search_calls=9, tokens=40))
    first, second, third = (call("rerank") for _ in range(3))
    budget.reserve(first)
    budget.reserve(second)
    with pytest.raises(BudgetExceeded, match=r"allows 40 tokens: 30 are used, and .* 15 more"):
        budget.reserve(third)
    # The reply took less than its bound, so there is room again.
    budget.charge(first, ChatUsage(2, 3))
    budget.reserve(third)
    with pytest.raises(BudgetExceeded):
        budget.reserve(call("rerank", tokens=(6, 0)))


def test_lost_reply_is_charged_at_its_bounds_and_refused_call_is_free() -> None:
    budget = ModelBudget(BudgetProfile(calls=2, tokens=30))
    budget.reserve(call())
    budget.release(call())
    spend(budget, call(), None)
    assert budget.list_usage() == [
        ModelUsage(
            task="answer", model="m", local=False, calls=1, failed=1, input_tokens=10,
            output_tokens=5, estimated=True, cost=None,
        )
    ]  # fmt: skip
    spend(budget, call(), ChatUsage(10, 5))
    assert budget.count_calls_left("answer") == 0


def test_cost_may_reach_its_cap_but_not_exceed_it() -> None:
    prices = PriceTable(models={"m": ModelPrice(per_call=0.1), "n": ModelPrice(per_call=0.2)})
    budget = ModelBudget(BudgetProfile(calls=9, cost=0.3), prices)
    # .1 + .2 exceeds .3 in binary fractions.
    spend(budget, call(model="m"), ChatUsage(1, 1))
    spend(budget, call(model="n"), ChatUsage(1, 1))
    assert budget.compute_cost() == 0.3
    with pytest.raises(BudgetExceeded, match=r"allows 0\.3 USD: 0\.3 is used"):
        budget.reserve(call(model="m"))
    assert budget.compute_cost() == 0.3


def test_model_without_price_is_not_called_under_a_cap_on_cost() -> None:
    budget = ModelBudget(BudgetProfile(cost=5), PRICES)
    with pytest.raises(BudgetExceeded, match="has no price"):
        budget.reserve(call(model="unknown"))
    assert budget.compute_cost() == 0 and budget.list_unpriced() == []


@pytest.mark.parametrize(
    ("usage", "counted"),
    [(ChatUsage(4, 0), (4, 5)), (ChatUsage(0, 3), (10, 3)), (ChatUsage(4, 3), (4, 3))],
)
def test_count_that_is_not_reported_is_taken_at_its_bound(
    usage: ChatUsage, counted: tuple[int, int]
) -> None:
    budget = ModelBudget()
    spend(budget, call(), usage)
    [item] = budget.list_usage()
    assert (item.input_tokens, item.output_tokens) == counted
    assert item.estimated == (usage != ChatUsage(*counted))


def test_tokens_of_a_stream_that_broke_are_not_believed() -> None:
    budget = ModelBudget()
    with (
        pytest.raises(TimeoutError),
        use_meter(budget),
        meter_call(call(tokens=(10, 5))) as metered,
    ):
        metered.usage = ChatUsage(4, 1)
        raise TimeoutError
    [item] = budget.list_usage()
    assert (item.input_tokens, item.output_tokens, item.estimated) == (10, 5, True)


def test_exception_during_a_call_charges_its_bounds() -> None:
    budget = ModelBudget()
    with pytest.raises(TimeoutError), use_meter(budget), meter_call(call()):
        raise TimeoutError
    assert [(item.calls, item.estimated) for item in budget.list_usage()] == [(1, True)]
    # Without a meter nothing is counted.
    with meter_call(call()):
        pass
    assert [item.calls for item in budget.list_usage()] == [1]


def build_world(
    answers: list[dict[str, Any]] | Exception | None = None,
    prices: PriceTable = PRICES,
    **budget: Any,
) -> RetrievalHarness:
    """Build a corpus with a planner, a writer and a judge."""
    built = make_harness()
    built.planner = ScriptedChat(PLAN, model="planner")
    built.chat = ScriptedChat([ANSWER] * 2 if answers is None else answers, model="writer")
    built.judge = ScriptedChat(REVIEW, model="judge")
    built.prices = prices
    built.profiles = [
        Profile(
            name="capped",
            plan=PlanProfile(model="default"),
            judge=JudgeProfile(model="default"),
            budget=BudgetProfile(**budget),
        )
    ]
    return built


def make_request(generation: str | None = None) -> QueryRequest:
    return QueryRequest(query=COST_QUESTION, profile="capped", k=3, generation=generation)


async def ask(**options: Any) -> tuple[RetrievalHarness, QueryResponse]:
    built = build_world(**options)
    return built, await built.make_retriever().query(LOCAL_CALLER, make_request(), RUN_ID)


def summarize(response: QueryResponse) -> dict[str, tuple[int, float | None]]:
    return {item.task: (item.calls, item.cost) for item in response.trace.usage}


async def test_trace_lists_every_call_with_its_cost() -> None:
    _, response = await ask()
    trace = response.trace
    assert summarize(response) == {
        "plan": (1, 0.01), "answer": (1, ANSWER_COST), "judge": (1, 0.0),
    }  # fmt: skip
    assert (trace.model_calls, trace.tokens, trace.currency) == (3, 360, "EUR")
    assert trace.cost == pytest.approx(0.01 + ANSWER_COST)
    assert trace.unpriced == [] and trace.stopped == []


async def test_model_without_price_makes_the_cost_unknown() -> None:
    prices = PRICES.model_copy(update={"models": {"planner": ModelPrice(), "judge": ModelPrice()}})
    _, response = await ask(prices=prices)
    assert response.trace.cost is None and response.trace.unpriced == ["writer"]
    assert summarize(response)["answer"] == (1, None) and summarize(response)["plan"] == (1, 0.0)


async def test_question_without_model_calls_costs_nothing() -> None:
    built = make_harness()
    response = await built.query(COST_QUESTION)
    assert (response.trace.cost, response.trace.model_calls, response.trace.unpriced) == (0, 0, [])


async def test_answer_is_quoted_when_planning_used_the_calls() -> None:
    built, response = await ask(calls=1)
    assert isinstance(built.chat, ScriptedChat) and built.chat.prompts == []
    assert response.trace.models["answer"] == "extractive"
    assert response.answer is not None and "18,740" in response.answer
    (stopped,) = response.trace.stopped
    assert (stopped.cap, stopped.task, stopped.model) == ("calls", "answer", "writer")
    assert "budget.calls of the profile allows 1 calls" in response.limitations[0]


async def test_rules_plan_and_judge_when_their_calls_are_capped() -> None:
    _, response = await ask(calls=0, judge_calls=0)
    assert response.trace.plan is not None and response.trace.plan.decided_by == "rules"
    assert response.judge is not None and response.judge.decision == "PASS"
    assert all(check.kind == "deterministic" or check.result == "not_checked"
               for check in response.judge.checks)  # fmt: skip
    assert [item.task for item in response.trace.stopped] == ["plan", "answer", "judge"]
    assert response.trace.model_calls == response.trace.tokens == response.trace.cost == 0
    assert any("planned by rules" in note for note in response.trace.notes)


@pytest.mark.parametrize(("tokens", "tasks"), [(1620, ["judge"]), (1619, ["answer"]), (0, None)])
async def test_cap_on_tokens_is_checked_with_the_bounds(
    tokens: int, tasks: list[str] | None
) -> None:
    # The plan takes 120; the answer may take 1,500 and takes 120, as does the judge.
    _, response = await ask(tokens=tokens)
    stopped = [item.task for item in response.trace.stopped]
    assert response.trace.tokens <= tokens
    if tasks is None:
        assert stopped == ["plan", "answer", "judge"]
    else:
        # 1,620 - 240 leaves the judge less than 1,500; without an answer it has 1,499.
        assert stopped == (tasks if tasks == ["judge"] else ["answer", "judge"])


@pytest.mark.parametrize("is_enough", [True, False])
async def test_cap_on_cost_is_checked_with_the_bounds(is_enough: bool) -> None:
    cost = round(0.01 + ANSWER_BOUND - (0 if is_enough else 1e-9), 12)
    _, response = await ask(cost=cost)
    assert response.trace.cost is not None and response.trace.cost <= cost
    stopped = [(item.cap, item.task) for item in response.trace.stopped]
    assert stopped == ([] if is_enough else [("cost", "answer")])
    assert response.trace.models["answer"] == ("writer" if is_enough else "extractive")


async def test_last_allowed_call_may_not_ask_for_another_search() -> None:
    insufficient = {**ANSWER, "sufficient": False, "sentences": []}
    built, response = await ask(answers=[insufficient], calls=2)
    assert isinstance(built.chat, ScriptedChat) and "`search`" not in built.chat.prompts[0][0]
    assert response.code == "INSUFFICIENT_CONTEXT" and response.trace.stopped == []


@pytest.mark.parametrize(("calls", "is_cached"), [(3, True), (1, False)])
async def test_cached_answer_costs_nothing_and_capped_answer_is_not_cached(
    calls: int, is_cached: bool
) -> None:
    built, request = build_world(calls=calls), make_request(generation="g1")
    cache = AnswerCache(built.index, SteppingClock(), max_entries=2, ttl=timedelta(seconds=60))
    retriever = built.make_retriever(answers=cache)
    first = await retriever.query(LOCAL_CALLER, request, RUN_ID)
    second = await retriever.query(LOCAL_CALLER, request, RUN_ID)
    assert first.trace.cost and second.trace.cached == is_cached
    if is_cached:
        assert (second.trace.cost, second.trace.model_calls, second.trace.usage) == (0, 0, [])


async def test_failed_call_is_listed_and_free() -> None:
    _, response = await ask(answers=EngineUnavailable("the server is down"))
    (answer,) = [item for item in response.trace.usage if item.task == "answer"]
    assert (answer.calls, answer.failed, answer.cost) == (0, 1, 0)
    assert response.trace.model_calls == 2 and response.trace.cost == 0.01
