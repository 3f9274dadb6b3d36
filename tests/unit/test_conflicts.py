"""Conflicts: found between statements about the same thing, and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import pytest

from retrieval.answering.conflicts import compare_documents
from retrieval.answering.evidence import Evidence
from retrieval.question.quantities import find_quantities
from retrieval.question.query_plan import plan_query
from retrieval.ranking.fusion import FusedCandidate
from retrieval.ranking.passages import ContextPassage, RankedParent, fold_duplicates
from retrieval.ranking.quote_candidates import extract_quote_candidates
from schemas.profiles import Profile, RedactionProfile
from schemas.questions import QueryResponse
from tests.unit.retrieval_fakes import (
    GuessedLanguageDetector,
    ScriptedChat,
    write_reply,
)
from tests.unit.retrieval_harness import RetrievalHarness, make_harness
from tests.unit.retrieval_memory_index import IndexedChild, IndexedDocument, MemoryIndex
from tests.unit.run_rows import rerun_query


def make_spans(text: str, raw_values: Mapping[str, str]) -> list[Mapping[str, object]]:
    cells = [
        {"char_start": start, "char_end": start + len(shown), "raw_value": raw_value}
        for shown, raw_value in raw_values.items()
        if (start := text.find(shown)) >= 0
    ]
    return [{"char_start": 0, "char_end": len(text), "raw_cells": cells}]


def find_values(
    question: str,
    *texts: str,
    titles: tuple[str | None, ...] = (None, None),
    language: str = "en",
    raw_values: Mapping[str, str] = MappingProxyType({}),
    scores: tuple[float, ...] = (0.0, 0.0),
) -> list[str]:
    """Return the values on which documents with the given texts disagree.

    `raw_values` are what cells with these texts store.
    """
    contexts = []
    for n, (text, title) in enumerate(zip(texts, titles, strict=False), 1):
        index = MemoryIndex()
        child = IndexedChild(text, spans=make_spans(text, raw_values))
        index.add(IndexedDocument(f"note-{n}", [[child]], title, language))
        (chunk,) = index.views.values()
        parent = RankedParent(
            chunk.parent_id, chunk.document_id, 1.0, FusedCandidate(chunk, 1.0, {}, {}), 1
        )
        contexts.append(ContextPassage(n, parent, index.parent_views[chunk.parent_id], (chunk,)))
    candidates = tuple(extract_quote_candidates(contexts))
    plan = plan_query(question, language, GuessedLanguageDetector())
    evidence = Evidence(candidates, scores)
    places = compare_documents(evidence, plan).places
    return [candidates[row].readable_text[slice(*place)] for row, place in places.items()]


@pytest.mark.parametrize(
    ("question", "first", "second", "titles", "values"),
    [
        (
            "How high is the late fee?",
            "The late fee is 10 percent of the rent.",
            "The late fee is 12 percent of the rent.",
            ("Lease, version 1", "Lease, version 2"),
            ["10 percent", "12 percent"],
        ),
        (
            "What does the travel policy say about mileage?",
            "The mileage rate is 0.30 euros per kilometre.",
            "From now on the mileage rate is 0.38 euros per kilometre.",
            ("Travel policy 2022", "Travel policy 2024"),
            ["0.30 euros", "0.38 euros"],
        ),
        (
            "When does the lease of the warehouse end?",
            "The lease of the warehouse ends on 31 March 2027.",
            "The lease of the warehouse ends on 2027-06-30.",
            (None, None),
            ["31 March 2027", "2027-06-30"],
        ),
        (
            "How long may flights in economy class be?",
            "Economy class applies to flights shorter than six hours.",
            "Economy class applies to flights shorter than 8 hours.",
            ("Old policy", "New policy"),
            ["six hours", "8 hours"],
        ),
        (
            "What is the price of the impeller?",
            "| Part | Price |\n|---|---|\n| Impeller | 310 EUR |",
            "| Part | Price |\n|---|---|\n| Impeller | 325 EUR |",
            ("Price list", "Price list, updated"),
            ["310 EUR", "325 EUR"],
        ),
        (
            "How many days of notice must Merrin Ferries give?",
            "Merrin Ferries gives 45 days of notice.",
            "Merrin Ferries gives 30 days of notice.",
            ("Agreement", "Minutes"),
            ["45 days", "30 days"],
        ),
        (
            "What is the budget for the new boiler?",
            "The budget for the new boiler is 52,000 euros.",
            "The budget for the new boiler amounts to 58,500 euros, including its removal.",
            ("Minutes of the board", "Works planned for 2025"),
            ["52,000 euros", "58,500 euros"],
        ),
        (
            "How long is the guarantee of the Brenner kettle?",
            "The guarantee of the Brenner kettle is 36 months.",
            "The guarantee of the Brenner mixer is 18 months; "
            "the guarantee of the Brenner kettle is 24 months.",
            ("Quick guide", "Terms of service"),
            ["36 months", "24 months"],
        ),
    ],
)
def test_conflict_is_found(
    question: str, first: str, second: str, titles: tuple[str | None, str | None], values: list[str]
) -> None:
    assert find_values(question, first, second, titles=titles) == values


@pytest.mark.parametrize(
    ("reason", "question", "first", "second", "titles"),
    [
        (
            "equal values",
            "How high is the late fee?",
            "The late fee is 10 percent, or 1,500.00 euros.",
            "The late fee is 10%, or 1500 euros.",
            (None, None),
        ),
        (
            "other subject in the sentence",
            "How much is a ticket for the museum?",
            "A ticket for adults costs 10 euros at the museum.",
            "A ticket for children costs 5 euros at the museum.",
            (None, None),
        ),
        (
            "other code",
            "What is the power of the motor?",
            "The motor of the HX-9 has a power of 30 kW.",
            "The motor of the HX-11 has a power of 38 kW.",
            (None, None),
        ),
        (
            "other period",
            "How high was the revenue?",
            "The revenue of 2023 was 10 million euros.",
            "The revenue of 2024 was 12 million euros.",
            ("Report", "Report"),
        ),
        (
            "the question names the period",
            "How high was the annual revenue in 2023?",
            "The annual revenue was 10 million euros.",
            "The annual revenue was 12 million euros.",
            ("Report 2023", "Report 2024"),
        ),
        (
            "other unit",
            "How long is the notice period?",
            "The notice period is 60 days.",
            "The notice period is 2 months.",
            (None, None),
        ),
        (
            "other property",
            "How much is the monthly rent?",
            "The monthly rent is 890 euros.",
            "The monthly rent is 4,800 euros.",
            ("Lease of the orchard", "Lease of the workshop"),
        ),
        (
            "too little in common for unlike titles",
            "How much is the monthly rent?",
            "The monthly rent is 890 euros.",
            "The monthly rent is 4,800 euros.",
            ("Quillon Lane orchard", "Workshop nine"),
        ),
        (
            "the other clause answers",
            "How long is the guarantee of the Brenner mixer?",
            "The guarantee of the Brenner kettle is 36 months.",
            "The guarantee of the Brenner mixer is 18 months; "
            "the guarantee of the Brenner kettle is 24 months.",
            ("Quick guide", "Terms of service"),
        ),
        (
            "other subject in each clause",
            "How long is the guarantee of the Brenner kettle?",
            "The guarantee of the Brenner kettle is 36 months.",
            "The guarantee of the Brenner mixer is 18 months; repairs take 5 months.",
            ("Quick guide", "Terms of service"),
        ),
        (
            "a name is asked for",
            "Who pays the late fee?",
            "The tenant pays a late fee of 10 percent.",
            "The tenant pays a late fee of 12 percent.",
            (None, None),
        ),
        (
            "the amount is not asked for",
            "When is the late fee due?",
            "The late fee of 10 percent is due on 5 May 2026.",
            "The late fee of 12 percent is due on 5 May 2026.",
            (None, None),
        ),
    ],
)
def test_other_difference_is_no_conflict(
    reason: str, question: str, first: str, second: str, titles: tuple[str | None, str | None]
) -> None:
    assert find_values(question, first, second, titles=titles) == [], reason


SALES = "| Region | Sales |\n| --- | --- |\n| Norte | {} |"


@pytest.mark.parametrize(
    ("first", "second", "raw_values", "values"),
    [
        # What is shown agrees, what is stored agrees, and neither does.
        ("12.5M", "12,500,000", {"12.5M": "12487300"}, []),
        ("12.5M", "12,487,300", {"12.5M": "12487300"}, []),
        ("12.5M", "12,900,000", {"12.5M": "12487300"}, ["12.5M", "12,900,000"]),
        ("12.5M", "12.5M", {"12.5M": "12487300"}, []),
        ("40%", "40.4%", {"40%": "0.404"}, []),
        ("40%", "41%", {"40%": "0.404"}, ["40%", "41%"]),
        ("$1.3", "$1,300,000", {"$1.3": "1300000"}, []),
        # Without the stored value, the letter is a unit and the number a small one.
        ("12.5M", "12,900,000", {}, []),
    ],
)
def test_cells_are_compared_by_what_they_store(
    first: str, second: str, raw_values: dict[str, str], values: list[str]
) -> None:
    texts = SALES.format(first), SALES.format(second)
    assert find_values("How high are the sales of Norte?", *texts, raw_values=raw_values) == values


def test_stored_date_tells_day_from_month() -> None:
    texts = [f"| Lot | Delivery |\n| --- | --- |\n| L-7 | {day} |" for day in DELIVERIES]
    question = "When is the delivery of lot L-7?"
    assert find_values(question, *texts) == list(DELIVERIES)
    assert find_values(question, *texts, raw_values={DELIVERIES[0]: "2025-03-04"}) == []


DELIVERIES = ("03/04/2025", "4 March 2025")


def test_one_document_does_not_conflict_with_itself() -> None:
    text = "The late fee is 10 percent.\n\nThe late fee is 12 percent."
    assert find_values("How high is the late fee?", text) == []


def test_quantities_are_normalized() -> None:
    texts = [
        "1,500.00 euros and 1.500,00 EUR and EUR 1500",
        "31 March 2027, March 31, 2027, 31 de março de 2027, 31.03.2027 and 2027-03-31",
        "two million dollars, US$ 2 million",
        "45-day, 45 days and forty-five days",
        "3,5 m and 3.50 m",
    ]
    for text in texts:
        quantities = {(item.kind, item.value) for item in find_quantities(text)}
        assert len({value for _, value in quantities}) <= 2, (text, quantities)
    assert [item.value for item in find_quantities(texts[0])] == ["1500", "1500", "1500"]
    assert {item.value for item in find_quantities(texts[1])} == {"2027-03-31"}
    assert [item.value for item in find_quantities(texts[3])] == ["45", "45", "45"]
    assert [item.value for item in find_quantities(texts[4])] == ["3.5", "3.5"]


FEE_QUESTION = "How high is the late fee of the warehouse?"


def make_fee_chat() -> ScriptedChat:
    return ScriptedChat(write_reply(("The late fee of the warehouse is 12 percent.", [1])))


def add_fees(built: RetrievalHarness) -> None:
    for name, fee in (
        ("fees-v1", "10 percent"),
        ("fees-v2", "12 percent"),
        ("fees-v3", "12 percent"),
    ):
        built.add(name, f"The late fee of the warehouse is {fee}. It is paid at once.", title=name)


async def test_quoted_answer_shows_the_conflict_first() -> None:
    built = make_harness()
    add_fees(built)
    response = await built.query(FEE_QUESTION)
    assert response.answer is not None
    assert [value.value for value in response.conflicts[0].values] == ["12 percent", "10 percent"]
    assert response.answer.startswith(
        "The late fee of the warehouse is **12 percent**. [1][2] "
        "The late fee of the warehouse is **10 percent**. [3]"
    )
    cited = {citation.n: citation.external_id for citation in response.citations}
    assert {cited[n] for n in response.conflicts[0].values[0].citations} == {"fees-v2", "fees-v3"}
    assert response.limitations[0] == "The documents disagree: 12 percent [1][2], 10 percent [3]."
    assert response.confidence.level != "high"
    assert response.confidence.reasons[0] == "the documents disagree on a number or date"


async def test_question_for_one_edition_is_answered_by_it_alone() -> None:
    built = make_harness()
    for year, fee in ((2022, "10 percent"), (2024, "12 percent")):
        title = f"Warehouse fees {year}"
        built.add(f"fees-{year}", f"The late fee of the warehouse is {fee}.", title=title)
    response = await built.query("How high is the late fee of the warehouse in 2022?")
    assert response.answer == "The late fee of the warehouse is 10 percent. [1]"
    assert response.conflicts == [] and len(response.citations) == 1
    unknown = await built.query("How high is the late fee of the warehouse?")
    assert len(unknown.conflicts[0].values) == 2


async def test_equal_sentences_are_quoted_once_with_every_citation() -> None:
    built = make_harness()
    for name in ("rules-a", "rules-b"):
        built.add(name, "The gate of the warehouse closes at nine.", title=name)
    response = await built.query("When does the gate of the warehouse close?")
    assert (response.answer or "").count("The gate of the warehouse closes at nine.") == 1
    assert {"rules-a", "rules-b"} <= {citation.external_id for citation in response.citations}
    assert response.conflicts == []


async def test_sentence_is_cited_from_at_most_five_documents() -> None:
    built = make_harness()
    sentence = "The gate of the warehouse closes at nine."
    for n in range(7):
        built.add(f"rules-{n}", sentence, title=f"Rules {n}")
    response = await built.query("When does the gate of the warehouse close?")
    assert [item.quote for item in response.citations].count(sentence) == 5


@pytest.mark.parametrize(("score", "n_values"), [(-8.0, 2), (-8.1, 0)])
def test_sentence_far_behind_the_best_one_is_not_compared(score: float, n_values: int) -> None:
    texts = [f"The late fee of the warehouse is {fee} percent." for fee in (12, 10)]
    question = "How high is the late fee of the warehouse?"
    assert len(find_values(question, *texts, scores=(0.0, score))) == n_values


async def test_written_answer_cites_both_sides_of_a_conflict() -> None:
    built = make_harness()
    built.chat = make_fee_chat()
    add_fees(built)
    response = await built.query(FEE_QUESTION)
    assert [value.value for value in response.conflicts[0].values] == ["12 percent", "10 percent"]
    cited = {n for value in response.conflicts[0].values for n in value.citations}
    assert cited <= {citation.n for citation in response.citations}
    assert response.limitations[0].startswith("The documents disagree: ")


@pytest.mark.parametrize("is_written", [False, True])
async def test_conflict_is_the_same_in_a_rerun(is_written: bool) -> None:
    built = make_harness()
    built.chat = make_fee_chat() if is_written else None
    add_fees(built)
    response = await built.query(FEE_QUESTION)
    rerun = await rerun_query(built)
    assert rerun.same, rerun.differences
    assert response.conflicts and isinstance(rerun.response, QueryResponse)
    assert rerun.response.conflicts == response.conflicts


async def test_conflict_of_identifiers_is_masked() -> None:
    built = make_harness()
    built.profiles = [Profile(name="masked", redaction=RedactionProfile(kinds=["phone"]))]
    for name, number in (("note-v1", "(415) 555-2671"), ("note-v2", "(415) 555-9143")):
        built.add(name, f"The office of the warehouse has the number {number}.", title=name)
    response = await built.query("What number has the office of the warehouse?", profile="masked")
    assert "2671" not in response.model_dump_json() and "9143" not in response.model_dump_json()


def test_revisions_that_differ_in_a_number_are_not_folded() -> None:
    index = MemoryIndex()
    text = " ".join(
        f"Clause {'x' * n} says that the tenant keeps the room clean." for n in range(9)
    )
    for name, fee in (("one", 10), ("two", 12), ("three", 12)):
        index.add(
            IndexedDocument(name, [[IndexedChild(f"{text} The fee is {fee} percent.")]], None)
        )
    parents = [
        RankedParent(view.parent_id, view.document_id, 1.0, FusedCandidate(view, 1.0, {}, {}), 1)
        for view in index.views.values()
    ]
    assert [len(parent.duplicates) for parent in fold_duplicates(parents, 10, 10, 0.9)] == [0, 1]
