from __future__ import annotations

from typing import Literal

import pytest

from retrieval.question.query_plan import QueryPlan, plan_query
from retrieval.ranking.candidate_retrieval import ChannelCandidates
from retrieval.ranking.planning import choose_route, escalate_query
from retrieval.ranking.query_context import QueryContext, Stopwatch
from retrieval.ranking.relevance import RelevanceDecision
from schemas.channels import SemanticProfile
from schemas.errors import DatabaseUnavailable
from schemas.planning import IntentProfile, PlanProfile, RouteProfile
from schemas.profiles import Profile
from schemas.questions import QueryRequest, Route, RouteMode, SearchRequest, ignore_progress
from tests.support.api_client import LOCAL_CALLER
from tests.unit.retrieval_fakes import GuessedLanguageDetector, SteppingClock
from tests.unit.retrieval_harness import COST_QUESTION, RUN_ID, make_harness

RELATION_QUESTION = "What is the relationship between Harbour Estates and Acme Corporation?"
OFF_TOPIC_QUESTION = "Quem venceu a eleição de Brugge?"


def make_plan(question: str) -> QueryPlan:
    return plan_query(question, None, GuessedLanguageDetector())


@pytest.mark.parametrize(
    ("question", "is_named", "mode", "is_sure"),
    [
        (RELATION_QUESTION, True, "graph", True),
        ("How is Harbour Estates connected to the warehouse?", True, "hybrid", False),
        ("The G allele of FOXO3 is related to symptoms of Crohn's Disease.", True, "hybrid", False),
        ("What Do Acme Corp and it have in common?", True, "hybrid", False),
        (COST_QUESTION, False, "vector", True),
        (COST_QUESTION, True, "hybrid", True),
        ("Which is cheaper, the seal or the impeller?", False, "hybrid", True),
        ("Why does the lease end?", False, "hybrid", True),
        (
            "A memo to Anna Berg about Port Merrin and the eels of the upper river.",
            True,
            "hybrid",
            False,
        ),
    ],
)
def test_rules_choose_the_route(
    question: str, is_named: bool, mode: RouteMode, is_sure: bool
) -> None:
    request = SearchRequest(query=question)
    decision = choose_route(request, make_plan(question), is_named=is_named)
    assert (decision.route.mode, decision.is_sure) == (mode, is_sure)
    assert decision.route.decided_by == "rules" and decision.route.reason


@pytest.mark.parametrize("mode", ["vector", "graph", "hybrid"])
def test_mode_of_the_request_is_final(mode: RouteMode) -> None:
    for question in (RELATION_QUESTION, COST_QUESTION):
        request = SearchRequest(query=question, mode=mode)
        route = choose_route(request, make_plan(question), is_named=False).route
        assert (route.mode, route.decided_by) == (mode, "request")


async def test_single_fact_is_searched_without_graph_unless_it_names_an_entity() -> None:
    retriever = make_harness().make_retriever()
    unnamed = await retriever.search(LOCAL_CALLER, SearchRequest(query=COST_QUESTION), RUN_ID)
    assert unnamed.trace.route.mode == "vector" and "graph" not in unnamed.trace.channels
    for question in (
        "How much does the coolant pump cost?",  # an entity, in lower case
        "How long is the maintenance plan?",  # a document
    ):
        named = await retriever.search(LOCAL_CALLER, SearchRequest(query=question), RUN_ID)
        assert named.trace.route.mode == "hybrid" and "graph" in named.trace.channels


async def test_profile_keeps_the_graph_for_single_facts() -> None:
    built = make_harness()
    built.profiles = [Profile(name="all", route=RouteProfile(vector=False))]
    response = await built.search(COST_QUESTION, profile="all")
    assert response.trace.route.mode == "hybrid"


async def test_failing_graph_costs_only_its_channel() -> None:
    built = make_harness()
    built.index.channel_errors["link"] = DatabaseUnavailable("the graph is gone")
    response = await built.search(COST_QUESTION)
    assert response.results[0].external_id == "pump"
    assert "graph" in response.trace.channels_failed


async def test_refusal_is_searched_once_more_with_wider_channels() -> None:
    built = make_harness()
    # Fewer candidates than the corpus has, or there would be nothing more to find.
    built.profiles = [Profile(name="narrow", semantic=SemanticProfile(k=12))]
    response = await built.query(OFF_TOPIC_QUESTION, profile="narrow", k=1)
    assert response.refused and built.index.call_counts["semantic"] == 2
    assert response.trace.channels["semantic"].k == 24
    assert response.trace.plan is not None and response.trace.plan.widen == 2
    assert response.trace.route.mode == "hybrid"
    assert response.trace.route.escalated_from == "vector"


@pytest.mark.parametrize(
    ("options", "route"),
    [
        ({"mode": "hybrid"}, RouteProfile()),
        ({"channels": ["lexical", "semantic"]}, RouteProfile()),
        ({}, RouteProfile(escalate="never")),
        ({}, RouteProfile(widen=1, vector=False)),
    ],
)
async def test_what_a_person_sets_is_not_escalated(
    options: dict[str, object], route: RouteProfile
) -> None:
    built = make_harness()
    built.profiles = [Profile(name="own", semantic=SemanticProfile(k=12), route=route)]
    request = QueryRequest.model_validate(
        {"query": OFF_TOPIC_QUESTION, "profile": "own", "k": 1, **options}
    )
    response = await built.make_retriever().query(LOCAL_CALLER, request, RUN_ID)
    assert response.refused and built.index.call_counts["semantic"] == 1
    assert response.trace.route.escalated_from is None


async def test_exhausted_channels_are_not_searched_again() -> None:
    built = make_harness()
    built.profiles = [Profile(name="all", route=RouteProfile(vector=False))]
    response = await built.query(OFF_TOPIC_QUESTION, profile="all")
    assert response.refused and built.index.call_counts["semantic"] == 1


async def test_profile_sets_weights_and_candidates_by_intent() -> None:
    built = make_harness()
    lookup = IntentProfile(weights={"semantic": 0.0, "lexical": 2.0}, k={"lexical": 7})
    built.profiles = [Profile(name="own", plan=PlanProfile(intents={"lookup": lookup}))]
    response = await built.search("bearing replacement", profile="own", explain=True, k=5)
    plan, explanation = response.trace.plan, response.results[0].explanation
    assert plan is not None and plan.intent == "lookup" and explanation is not None
    assert response.trace.channels["lexical"].k == 7
    assert explanation["weights"]["semantic"] == 0 < 1 < explanation["weights"]["lexical"]
    unchanged = (
        (await built.search("Why is the bearing replaced?", profile="own", explain=True))
        .results[0]
        .explanation
    )
    assert unchanged is not None and unchanged["weights"]["semantic"] == 1.25


@pytest.mark.parametrize(
    ("question", "embedded"),
    [
        ("Could you please tell me how much the bearing costs?", "How much the bearing costs?"),
        ("Hello, I would like to know if smoking is allowed", "Smoking is allowed"),
        ("Você poderia me dizer qual é o prazo?", "Qual é o prazo?"),
        ("Tell me.", "Tell me."),
        ("What can you tell me about pumps?", "What can you tell me about pumps?"),
    ],
)
def test_courtesies_are_not_embedded(question: str, embedded: str) -> None:
    plan = make_plan(question)
    assert plan.text_to_embed == embedded and plan.question == question


@pytest.mark.parametrize(
    ("escalate", "refused", "probability", "is_repeated"),
    [
        ("unsure", False, 0.2, True),
        ("unsure", False, 0.9, False),
        ("refused", False, 0.2, False),
        ("refused", True, 0.01, True),
        ("never", True, 0.01, False),
    ],
)
def test_profile_says_when_to_search_once_more(
    escalate: Literal["refused", "unsure", "never"],
    refused: bool,
    probability: float,
    is_repeated: bool,
) -> None:
    query = QueryContext(
        LOCAL_CALLER,
        RUN_ID,
        QueryRequest(query=COST_QUESTION),
        Profile(route=RouteProfile(escalate=escalate, widen=3)),
        make_plan(COST_QUESTION),
        Stopwatch(SteppingClock()),
        ignore_progress,
    )
    route = Route(mode="vector", decided_by="rules", reason="one fact")
    relevance = RelevanceDecision(refused, 0.5, 0.5, 0.0, "weak", probability)
    candidates = ChannelCandidates({}, {}, {}, frozenset(), None, (), None)
    wider = escalate_query(route, query, relevance, candidates, "answer")
    assert (wider is not None) is is_repeated
    if wider is not None:
        wider_query, wider_route = wider
        assert wider_query.plan.widen == 3
        assert (wider_route.mode, wider_route.escalated_from) == ("hybrid", "vector")
        # Once, and no more.
        assert escalate_query(wider_route, wider_query, relevance, candidates, "answer") is None
