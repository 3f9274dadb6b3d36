"""Redaction: no masked identifier leaves the pipeline, in whole or by its pieces."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import Any, get_args
from uuid import UUID

import pytest

from retrieval.answering.generative_answer import PartialAnswer
from retrieval.ranking.query_context import Clock
from retrieval.redaction import MASK, Passage, Redactor, holds_quote
from retrieval.runs.answer_cache import AnswerCache
from retrieval.runs.lineage.hops import QuotePosition
from retrieval.runs.rerun import rerun_run
from schemas.profiles import Profile, RedactionProfile
from schemas.questions import AnswerDelta, Progress, QueryRequest
from schemas.values import IdentifierKind
from tests.support.api_client import LOCAL_CALLER
from tests.unit.retrieval_fakes import ScriptedChat, SteppingClock, write_reply
from tests.unit.retrieval_harness import RUN_ID, RetrievalHarness, make_harness
from tests.unit.run_rows import FakeRecordedTexts, make_run_row

KINDS = list(get_args(IdentifierKind))
IDENTIFIERS = {
    "ssn": "536-22-8714",
    "email": "marta.quill@harbour-pilots.example.com",
    "phone": "(415) 555-2671",
    "card": "4539 5787 6362 1486",
    "cpf": "529.982.247-25",
    "cnpj": "11.222.333/0001-81",
}
REMINDER = (
    f"The pilot Marta Quill has the social security number {IDENTIFIERS['ssn']}. "
    f"Write to Marta Quill at {IDENTIFIERS['email']}, or call her at {IDENTIFIERS['phone']}. "
    f"The pilot fees of Marta Quill are paid by card {IDENTIFIERS['card']}."
)
REGISTER = (
    "| Pilot | CPF | Company | Badge |\n|---|---|---|---|\n"
    f"| Rui Sal | {IDENTIFIERS['cpf']} | {IDENTIFIERS['cnpj']} | HX-9 |"
)
# What the cells of a spreadsheet store, whose format spaces the digits out.
REGISTER_SPAN = {
    "char_start": 0,
    "char_end": len(REGISTER),
    "raw_cells": [
        {
            "char_start": REGISTER.index(shown),
            "char_end": REGISTER.index(shown) + len(shown),
            "raw_value": re.sub(r"\D", "", shown),
        }
        for shown in (IDENTIFIERS["cpf"], IDENTIFIERS["cnpj"])
    ],
}
QUESTIONS = [
    "What is the social security number of the pilot Marta Quill?",
    "What is the e-mail of Marta Quill?",
    "How are the pilot fees of Marta Quill paid?",
    "Which CPF has the pilot Rui Sal?",
    f"Whose social security number is {IDENTIFIERS['ssn']}?",
    f"Who is called at {IDENTIFIERS['phone']}, and by whom?",
    f"Which pilot has the address {IDENTIFIERS['email']}?",
    f"What was paid with card {IDENTIFIERS['card']} by the pilot HX-12?",
]
# An identifier is also recognized by a part of it.
CANARIES = [
    *IDENTIFIERS.values(),
    "536-22",
    "22-8714",
    "555-2671",
    "marta.quill",
    "5787",
    "6362 1486",
    "529.982",
    "222.333",
    "52998224725",
    "11222333000181",
]
UNREDACTED = Profile(name="plain")
REDACTED = Profile(name="redacted", redaction=RedactionProfile(kinds=KINDS))


def make_redacted_harness(**parts: Any) -> RetrievalHarness:
    built = make_harness()
    built.profiles = [REDACTED, UNREDACTED]
    for name, part in parts.items():
        setattr(built, name, part)
    built.add("reminder", REMINDER, title=f"Pilots, {IDENTIFIERS['email']}")
    built.add("register", REGISTER, title="Register of pilots", kind="table", spans=[REGISTER_SPAN])
    return built


def find_canaries(*texts: str) -> list[str]:
    # Without scores, whose digits may be those of a canary.
    joined = re.sub(r"\d\.\d{8,}", "", "\n".join(texts))
    # As JSON writes them too.
    return [canary for canary in CANARIES if canary in joined]


def list_event_texts(built: RetrievalHarness) -> list[str]:
    return [event.model_dump_json() for event in built.published_events]


@pytest.mark.parametrize("question", QUESTIONS)
async def test_no_identifier_leaves_a_quoted_answer_or_its_run(question: str) -> None:
    built = make_redacted_harness()
    options: dict[str, Any] = {"explain": True, "debug": True, "return_text": True}
    response = await built.query(question, profile="redacted", **options)
    assert find_canaries(response.model_dump_json(), *list_event_texts(built)) == []
    assert response.redacted > 0 or response.refused


async def test_the_same_questions_show_identifiers_without_redaction() -> None:
    """Proves that the canaries above would be seen."""
    built = make_redacted_harness()
    for question in QUESTIONS:
        response = await built.query(question, profile="plain")
        assert response.redacted == 0
    seen = set(find_canaries(*list_event_texts(built)))
    assert {*IDENTIFIERS.values(), "52998224725"} <= seen


@pytest.mark.parametrize("question", QUESTIONS)
async def test_no_identifier_leaves_search_results(question: str) -> None:
    built = make_redacted_harness()
    response = await built.search(
        question, profile="redacted", explain=True, k=40, return_text=True
    )
    assert find_canaries(response.model_dump_json(), *list_event_texts(built)) == []
    assert response.redacted > 0


async def test_quote_is_verbatim_but_for_its_redacted_ranges() -> None:
    built = make_redacted_harness()
    response = await built.query(QUESTIONS[1], profile="redacted")
    citation = next(item for item in response.citations if item.redacted)
    assert not holds_quote(REMINDER, citation.quote, [])
    assert holds_quote(REMINDER, citation.quote, citation.redacted)
    for start, end in citation.redacted:
        assert set(citation.quote[start:end]) == {MASK}
    span = citation.spans[0]
    place = QuotePosition(citation.quote, span.char_start, span.char_end, citation.redacted)
    assert place.is_in(REMINDER)
    assert not place.is_in(REMINDER.replace("Marta", "Marte"))


async def test_model_gets_no_identifier_and_its_own_are_masked() -> None:
    chat = ScriptedChat(
        write_reply(
            (f"Write to Marta Quill at {IDENTIFIERS['email']}.", [1]),
            ("Her other number is 219-48-1305.", [1]),
            assumptions=[f"The card {IDENTIFIERS['card']} is hers."],
            limitations=[f"Her CPF {IDENTIFIERS['cpf']} was not given."],
        )
    )
    built, reported = make_redacted_harness(chat=chat), list[Progress]()
    request = QueryRequest(
        query=f"What is the e-mail of Marta Quill, {IDENTIFIERS['ssn']}?",
        profile="redacted",
        stream=True,
    )
    response = await built.make_retriever().query(LOCAL_CALLER, request, RUN_ID, reported.append)
    deltas = "".join(item.text for item in reported if isinstance(item, AnswerDelta))
    prompts = [text for prompt in chat.prompts for text in prompt]
    assert "Write to Marta Quill at" in deltas and MASK in "".join(prompts)
    texts = [deltas, *prompts, response.model_dump_json(), *list_event_texts(built)]
    assert find_canaries(*texts) == [] and "219-48-1305" not in "".join(texts)


def test_delta_waits_for_the_end_of_a_sentence() -> None:
    """A beginning such as "536-22" is not yet an identifier, and could not be taken back."""
    reported: list[Progress] = []
    partial_answer = PartialAnswer(reported.append, Redactor(REDACTED.redaction))
    reply = {"sentences": [{"text": f"It is {IDENTIFIERS['ssn']}."}, {"text": "Next one."}]}
    for letter in json.dumps(reply):
        partial_answer.feed(1, letter)
    texts = [item.text for item in reported if isinstance(item, AnswerDelta)]
    assert texts == [f"It is {MASK * 11}.", " Next one."]


async def test_answer_cache_holds_no_identifier() -> None:
    built = make_redacted_harness()
    clock: Clock = SteppingClock()
    cache = AnswerCache(built.index, clock, max_entries=8, ttl=timedelta(hours=1))
    retriever = built.make_retriever(answers=cache)
    for run in (1, 2):
        for question in QUESTIONS:
            request = QueryRequest(query=question, profile="redacted")
            await retriever.query(LOCAL_CALLER, request, UUID(int=run), generation="g1")
    assert len(cache) == len(QUESTIONS)
    held = [
        f"{key}{outcome.response!r}{outcome.answered_event!r}"
        for key, outcome in cache._outcomes.items()
    ]
    assert find_canaries(*held, *list_event_texts(built)) == []


@pytest.mark.parametrize("question", QUESTIONS[:4])
async def test_rerun_masks_again_and_gives_the_same_answer(question: str) -> None:
    built = make_redacted_harness()
    await built.query(question, profile="redacted")
    row = {"run_record": None, "response": None, **make_run_row(built)}
    rerun = await rerun_run(row, LOCAL_CALLER, FakeRecordedTexts(built))
    assert rerun.same, rerun.differences
    assert find_canaries(json.dumps(row), rerun.response.model_dump_json()) == []


def test_identifier_is_masked_where_its_context_is_cut_off() -> None:
    redactor = Redactor(REDACTED.redaction)
    redactor.learn(["Name: Ana; SSN: 536228714"])
    assert redactor.mask("| Ana | 536228714 |") == f"| Ana | {MASK * 9} |"
    assert redactor.mask("| Ana | 5362287145 |") == "| Ana | 5362287145 |"


def test_mask_keeps_the_length_and_all_other_text() -> None:
    redactor = Redactor(REDACTED.redaction)
    masked = redactor.mask(REMINDER)
    assert len(masked) == len(REMINDER) and find_canaries(masked) == []
    assert re.sub(f"{MASK}+", "", masked) in re.sub(
        "|".join(map(re.escape, IDENTIFIERS.values())), "", REMINDER
    )


def test_only_the_kinds_of_the_profile_are_masked() -> None:
    redactor = Redactor(RedactionProfile(kinds=["email"]))
    masked = redactor.mask(REMINDER)
    assert IDENTIFIERS["email"] not in masked and IDENTIFIERS["ssn"] in masked
    assert Redactor().mask(REMINDER) == REMINDER


def test_identifier_that_touches_a_word_is_masked() -> None:
    redactor = Redactor(REDACTED.redaction)
    text = "电话+8613800138000或者"
    assert redactor.mask(text) == f"电话{MASK * 14}或者"


@pytest.mark.parametrize(
    "identifier", ["536-22-\n8714", "+1 415\n555 2671", "4539 5787\n6362 1486", "529.982.247-\n25"]
)
async def test_identifier_across_a_line_break_is_masked(identifier: str) -> None:
    built = make_redacted_harness()
    built.add("note", f"The anchor watch of Ines Roca is noted under {identifier} by the mate.")
    response = await built.query(
        "What is the anchor watch of Ines Roca noted under?", profile="redacted", explain=True
    )
    texts = [response.model_dump_json(), *list_event_texts(built)]
    first, second = map(re.escape, identifier.split("\n"))
    assert not response.refused and "Ines Roca" in texts[0]
    # As JSON writes the line break, and as an answer does.
    assert not re.search(rf"{first}(?:\\n| )|(?:\\n| ){second}\b", "".join(texts))


DIVIDED = [
    ("4539 5787", "6362 1486"),
    ("536-22-", "8714"),
    ("529 982", "247 25"),
    ("+351 912", "345 678"),
    ("(415)", "555-2671"),
    ("11.222.333/", "0001-81"),
]


@pytest.mark.parametrize("one_parent", [True, False])
@pytest.mark.parametrize(("first", "second"), DIVIDED)
async def test_identifier_that_two_passages_divide_is_masked(
    first: str, second: str, one_parent: bool
) -> None:
    chat = ScriptedChat({"sufficient": False, "sentences": []})
    built = make_redacted_harness(chat=chat)
    built.add(
        "note",
        f"The anchor watch of Ines Roca in the harbour is noted under {first}",
        f"{second} by the mate of Ines Roca after the anchor watch. It has 4 men.",
        one_parent=one_parent,
        separator=" ",
    )
    question = "What is the anchor watch of Ines Roca noted under by the mate?"
    answer = await built.query(question, profile="redacted", explain=True)
    found = await built.search(question, profile="redacted", explain=True, return_text=True)
    texts = [answer.model_dump_json(), found.model_dump_json(), *list_event_texts(built)]
    prompts = [text for prompt in chat.prompts for text in prompt]
    joined = "".join([*texts, *prompts])
    assert "Ines Roca in the harbour" in joined and "It has 4 men" in joined
    assert not re.search(rf"under {re.escape(first)}", joined) or first == "(415)"
    assert not re.search(rf"{re.escape(second)} by", joined)


async def test_identifier_that_two_sentences_divide_is_masked() -> None:
    built = make_redacted_harness()
    built.add(
        "note",
        "The anchor watch of Ines Roca is kept under CPF 529. 982. 247-25 by Ines Roca. "
        "The anchor watch has 982 entries.",
    )
    response = await built.query(
        "What is the anchor watch of Ines Roca kept under?", profile="redacted", explain=True
    )
    text = "".join([response.model_dump_json(), *list_event_texts(built)])
    assert "Ines Roca" in text and response.redacted > 0
    assert not re.search(r"CPF 529|247-25|529\. 982", text)


def test_divided_pieces_are_masked_only_at_the_edge_of_a_text() -> None:
    redactor = Redactor(REDACTED.redaction)
    document, text = UUID(int=7), f"paid by card {IDENTIFIERS['card']} today"
    cut = text.index("6362")
    first, second = (
        Passage(document, 100, text[:cut].rstrip()),
        Passage(document, 100 + cut, text[cut:]),
    )
    redactor.learn_divided([first, second], [first, second])
    assert redactor.mask(first.text) == f"paid by card {MASK * 9}"
    assert redactor.mask(second.text) == f"{MASK * 9} today"
    assert redactor.mask("The lots 6362 1486 and 4539 5787 are sold.") == (
        "The lots 6362 1486 and 4539 5787 are sold."
    )


def test_passages_apart_or_of_two_documents_are_not_joined() -> None:
    redactor = Redactor(REDACTED.redaction)
    first = Passage(UUID(int=7), 0, "The lots 4539 5787")
    for second in (
        Passage(UUID(int=8), len(first.text) + 1, "6362 1486 are sold."),
        Passage(UUID(int=7), len(first.text) + 2, "6362 1486 are sold."),
    ):
        redactor.learn_divided([first, second], [first, second])
        assert redactor.mask(second.text) == second.text
    assert redactor.mask(first.text) == first.text
