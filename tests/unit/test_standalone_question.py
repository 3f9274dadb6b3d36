"""Questions of a conversation are filled in, by rules or by the chat model."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from retrieval.question.standalone_question import rewrite_by_rules
from schemas.errors import EngineUnavailable
from schemas.planning import PlanProfile
from schemas.profiles import Profile
from schemas.questions import QueryRequest, QueryResponse
from tests.support.api_client import LOCAL_CALLER
from tests.unit.retrieval_fakes import ScriptedChat
from tests.unit.retrieval_harness import RetrievalHarness, make_harness

NOTICE = "How many days of notice must Merrin Ferries give?"
FOLLOW_UP = "How much does it cost?"


@pytest.mark.parametrize(
    ("earlier", "question", "standalone"),
    [
        ([], FOLLOW_UP, FOLLOW_UP),
        ([NOTICE], "What deposit does it pay?", "What deposit does Merrin Ferries pay?"),
        ([NOTICE], "Who are its directors?", "Who are Merrin Ferries's directors?"),
        ([NOTICE], "When?", f"When? ({NOTICE})"),
        ([NOTICE], "What about Kestrel Lines?", NOTICE.replace("Merrin Ferries", "Kestrel Lines")),
        ([NOTICE], "And how about in winter?", f"{NOTICE[:-1]} in winter?"),
        (
            [NOTICE, "What about Kestrel Lines?"],
            "Who owns it?",
            "Who owns Kestrel Lines?",
        ),
        (
            ["What does the travel policy cover?"],
            "Who approves it?",
            "Who approves travel policy cover?",
        ),
        (["Does Kestrel Lines sail?"], "Since when does it?", "Since when does Kestrel Lines?"),
        (["Qual é o prazo da Obra Norte?"], "Quem paga isso?", "Quem paga isso? (Obra Norte)"),
        (["Qual é o prazo da Obra Norte?"], "E quanto à Obra Sul?", "Qual é o prazo da Obra Sul?"),
        # Another topic stays as it is.
        ([NOTICE], "How long is parental leave?", "How long is parental leave?"),
        ([NOTICE], "Is there a rule that covers dogs?", "Is there a rule that covers dogs?"),
    ],
)
def test_rules_fill_in_names_pronouns_and_openings(
    earlier: list[str], question: str, standalone: str
) -> None:
    assert rewrite_by_rules(earlier, question) == standalone


async def ask(built: RetrievalHarness, **options: Any) -> QueryResponse:
    turns = [
        {"role": "user", "text": "What is the replacement of the bearing?"},
        {"role": "assistant", "text": "Ask about the Golden Gate instead."},
    ]
    request = QueryRequest.model_validate({"query": FOLLOW_UP, "history": turns, **options})
    return await built.make_retriever().query(LOCAL_CALLER, request, UUID(int=7))


async def test_rewritten_question_is_searched_and_recorded() -> None:
    built = make_harness()
    response = await ask(built)
    plan, record = response.trace.plan, built.published_events[-1].run_record  # type: ignore[union-attr]
    assert plan is not None and record is not None
    assert plan.question == record.question == "How much does replacement bearing cost?"
    assert response.answer is not None and "18,740" in response.answer


async def test_question_without_history_is_unchanged() -> None:
    built = make_harness()
    response = await ask(built, history=[])
    assert response.trace.plan is not None and response.trace.plan.question is None


@pytest.mark.parametrize(
    ("reply", "question"),
    [
        ({"question": "What does the bearing cost?"}, "What does the bearing cost?"),
        (EngineUnavailable("the server is down"), "How much does replacement bearing cost?"),
        ({"question": "?"}, "How much does replacement bearing cost?"),
        ({"question": "x" * 2001}, "How much does replacement bearing cost?"),
    ],
)
async def test_model_rewrites_and_rules_stand_in(reply: Any, question: str) -> None:
    built = make_harness()
    built.planner = ScriptedChat(reply, model="planner")
    response = await ask(built)
    trace = response.trace
    assert trace.plan is not None and trace.plan.question == question
    assert trace.usage[0].task == "standalone" or trace.usage[0].failed
    is_usable = question == "What does the bearing cost?"
    assert any("rewritten by rules" in note for note in trace.notes) == (not is_usable)


async def test_profile_keeps_rules() -> None:
    built = make_harness()
    built.planner = ScriptedChat({"question": "What does the bearing cost?"}, model="planner")
    built.profiles = [Profile(name="plain", plan=PlanProfile(rewrite="rules"))]
    response = await ask(built, profile="plain")
    assert response.trace.plan is not None
    assert response.trace.plan.question == "How much does replacement bearing cost?"
    assert built.planner.prompts == []
