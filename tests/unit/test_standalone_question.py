"""Questions of a conversation are filled in, by rules or by the chat model.

Words of a question are found in a text of the other language by the dictionary.
"""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Any
from uuid import UUID

import pytest

from retrieval.question.query_plan import rewrite_by_rules
from retrieval.question.words import (
    extract_content_words,
    extract_word_keys,
    guess_by_dictionary,
    match_words,
)
from schemas.errors import EngineUnavailable
from schemas.planning import PlanProfile
from schemas.profiles import Profile
from schemas.questions import QueryRequest, QueryResponse
from tests.support.api_client import LOCAL_CALLER
from tests.unit.retrieval_fakes import ScriptedChat
from tests.unit.retrieval_harness import RetrievalHarness, make_harness

LEASE = extract_word_keys(
    "The tenant pays a deposit of 2,670 euros, and Anna Renn gave the keys to both cities."
)


@pytest.mark.parametrize(
    "word",
    ["caução", "inquilino", "chaves", "cidades", "cidade", "pagou", "pagaram", "deu", "Renn"],
)
def test_translated_word_is_held(word: str) -> None:
    assert match_words([word], "pt-BR", "en", LEASE) == [True]


def test_missing_and_unknown_words_are_told_apart() -> None:
    assert match_words(["seguro", "jardim", "Quillon"], "pt", "en", LEASE) == [False, False, None]


def test_words_of_one_language_are_compared_as_they_are() -> None:
    assert match_words(["tenant", "caução"], "en", "en-GB", LEASE) == [True, False]


def test_words_of_a_language_without_dictionary_are_unknown() -> None:
    assert match_words(["Mieter", "euros"], "de", "en", LEASE) == [None, True]
    assert match_words(["caução"], None, "en", LEASE) == [None]
    assert match_words(["caução"], "pt", "de", LEASE) == [None]


@pytest.mark.parametrize(
    ("word", "other"),
    [
        ("norte", "south"),
        ("mãe", "father"),
        ("semana", "month"),
        ("senhorio", "tenant"),
        ("comprador", "seller"),
        ("máximo", "minimum"),
        ("entrada", "exit"),
        ("verão", "winter"),
        ("vermelho", "green"),
        ("nascer", "die"),
    ],
)
def test_opposite_is_no_translation(word: str, other: str) -> None:
    assert match_words([word], "pt", "en", extract_word_keys(other)) == [False]


def test_function_words_are_no_translations() -> None:
    # The key of "depois" is that of "depo", a form of "depor".
    assert match_words(["deposit"], "en", "pt", {"depo", "entr", "sao"}) == [False]


def test_text_of_unknown_language_may_be_of_either() -> None:
    assert match_words(["deposit", "tenant"], "en", None, LEASE) == [True, True]
    assert match_words(["caução", "seguro"], "pt", None, LEASE) == [True, False]


@pytest.mark.parametrize(
    ("question", "language"),
    [
        ("Que bandeira mostra o navio Petrel de dia?", "pt"),
        ("Which flag does the ship Petrel show?", "en"),
        ("Petrel Kessel Obrist?", None),
    ],
)
def test_language_is_guessed_by_words_of_one_dictionary(
    question: str, language: str | None
) -> None:
    assert guess_by_dictionary(extract_content_words(question)) == language


def test_dictionary_lines_are_sorted_pairs_of_words() -> None:
    lines = (
        (files("retrieval.question") / "translations.txt").read_text(encoding="utf-8").splitlines()
    )
    assert lines == sorted(set(lines))
    assert [line for line in lines if not re.fullmatch(r"[^|]+\|[^|]+", line)] == []
    assert [word for line in lines for word in re.split(r"[ |]", line) if not word.islower()] == []


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
        ([NOTICE, "What about Kestrel Lines?"], "Who owns it?", "Who owns Kestrel Lines?"),
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
