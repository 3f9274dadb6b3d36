"""Things of one kind are distinguished by their number, letter or code."""

from __future__ import annotations

from datetime import date

import pytest

from retrieval.answering.confidence import find_missing_terms
from retrieval.answering.row_ranking import (
    demote_rows,
    find_designations,
    index_designations,
)
from retrieval.question.query_plan import plan_query
from retrieval.question.stated_filters import (
    confirm_links,
    find_ask,
    find_name_spans,
    find_stated_filters,
    fold_document_name,
    link_documents,
    weigh_documents,
)
from retrieval.question.words import stem_word
from retrieval.ranking.candidate_retrieval import list_first_chunks
from retrieval.ranking.quote_candidates import extract_quote_candidates
from schemas.planning import PlanProfile
from schemas.ports.search import NamedDocument
from schemas.profiles import Profile
from schemas.questions import Filters, SearchRequest, SearchResponse
from tests.support.api_client import LOCAL_CALLER
from tests.unit.retrieval_fakes import GuessedLanguageDetector
from tests.unit.retrieval_harness import RUN_ID, RetrievalHarness, make_harness
from tests.unit.retrieval_memory_index import (
    IndexedChild,
    IndexedDocument,
    MemoryIndex,
    make_contexts,
)

OPEN = Filters()


@pytest.mark.parametrize(
    ("question", "rest", "first", "last"),
    [
        (
            "What do documents from 2024 say about the pier?",
            "What do say about the pier?",
            date(2024, 1, 1),
            date(2024, 12, 31),
        ),
        (
            "In documents between March 2024 and 5 June 2025, who repaired it?",
            "who repaired it?",
            date(2024, 3, 1),
            date(2025, 6, 5),
        ),
        (
            "Which contracts dated 2025-03-14 name Merrin?",
            "Which contracts name Merrin?",
            date(2025, 3, 14),
            date(2025, 3, 14),
        ),
        ("Who spoke in minutes since 2024?", "Who spoke in minutes ?", date(2024, 1, 1), None),
        ("Os documentos antes de maio de 2024 e a taxa", "e a taxa", None, date(2024, 4, 30)),
        ("Dokumente aus 2024 zur Brücke", "zur Brücke", date(2024, 1, 1), date(2024, 12, 31)),
    ],
)
def test_stated_dates_of_documents_become_filters(
    question: str, rest: str, first: date | None, last: date | None
) -> None:
    stated = find_stated_filters(question, OPEN)
    assert stated is not None and stated.question == rest
    assert (stated.filters.date_from, stated.filters.date_to) == (first, last)


@pytest.mark.parametrize(
    "question",
    [
        "How many passengers crossed in August 2025?",
        "What does the annual report of 2025 say?",
        "Which contracts of 2025 name Merrin?",
        "What do files in 2024 hold?",
        "Which documents dated 2024-02-30 name it?",
        "Is C# used, and item #4?",
    ],
)
def test_dates_of_facts_are_no_filters(question: str) -> None:
    assert find_stated_filters(question, OPEN) is None


def test_tags_are_found_by_hash_and_by_word() -> None:
    stated = find_stated_filters('What do documents tagged "fees" and #harbour-dues say?', OPEN)
    assert stated is not None and stated.filters.tags == ["fees", "harbour-dues"]


def test_language_of_the_rest_is_as_sure_as_that_of_the_question() -> None:
    question = "Por que zumbe a bomba nos documentos de 2024?"
    detector = GuessedLanguageDetector()
    whole = plan_query(question, None, detector)
    rest = plan_query(question, None, detector, filters=OPEN)
    assert rest.stated is not None and rest.question == "Por que zumbe a bomba ?"
    assert (rest.language, rest.language_sure) == (whole.language, whole.language_sure)
    assert rest.unfiltered == whole


def test_filters_of_the_request_win() -> None:
    requested = Filters(tags=["mine"], date_from=date(2020, 1, 1), collections=["a"])
    assert find_stated_filters("documents from 2024 #tax", requested) is None
    stated = find_stated_filters("documents from 2024 #tax", Filters(collections=["a"]))
    assert stated is not None and stated.filters.collections == ["a"]


async def search_with_tag(built: RetrievalHarness, **options: object) -> SearchResponse:
    request = SearchRequest.model_validate(
        {"query": "In documents tagged staff, what does the lease say?", **options}
    )
    return await built.make_retriever().search(LOCAL_CALLER, request, RUN_ID)


async def test_stated_tag_restricts_the_search_and_is_reported() -> None:
    built = make_harness()
    child = IndexedChild("The handbook says what the lease means for staff.")
    built.index.add(IndexedDocument("tagged", [[child]], tags=("staff",)))
    response = await search_with_tag(built)
    assert {result.external_id for result in response.results} == {"tagged"}
    plan = response.trace.plan
    assert plan is not None and plan.filters == Filters(tags=["staff"])
    assert any("infer_filters" in note for note in response.trace.notes)


async def test_request_or_profile_turns_stated_filters_off() -> None:
    built = make_harness()
    built.profiles = [Profile(name="open", plan=PlanProfile(filters=False))]
    for options in ({"infer_filters": False}, {"profile": "open"}):
        response = await search_with_tag(built, **options)
        assert response.results[0].external_id == "lease"


async def test_filter_without_documents_is_dropped_by_the_second_search() -> None:
    response = await search_with_tag(make_harness())
    assert response.results[0].external_id == "lease"
    route = response.trace.route
    assert route.escalated_from is not None and "“documents tagged staff”" in route.reason
    assert any("All documents were searched" in note for note in response.trace.notes)
    assert response.trace.plan is not None and response.trace.plan.filters is None


def list_kept(text: str, question: str) -> list[str]:
    candidates = extract_quote_candidates(make_contexts(text), question)
    plan = plan_query(question, None, GuessedLanguageDetector())
    scores = demote_rows(candidates, plan, [1.0] * len(candidates))
    return [item.text for item, score in zip(candidates, scores, strict=True) if score > 0]


AURORA = (
    "The Aurora 5 heat pump costs 4,200 euros. It needs a 16 A fuse.\n\n"
    "The Aurora 7 heat pump costs 5,300 euros. It needs a 20 A fuse.\n\n"
    "Both are installed in two days."
)
SECTIONS = (
    "# Line 1\n\nA ride takes 22 minutes.\n\n# Line 3\n\nA ride takes 35 minutes.\n\n"
    "# Fares\n\nA ticket costs 2 euros."
)


@pytest.mark.parametrize(
    ("text", "question", "kept"),
    [
        (
            AURORA.replace("Aurora 7", "Aurora-7"),
            "How much does the Aurora 7 cost?",
            [
                "The Aurora-7 heat pump costs 5,300 euros.",
                "It needs a 20 A fuse.",
                "Both are installed in two days.",
            ],
        ),
        (
            SECTIONS,
            "How long does a ride on line 3 take?",
            ["A ride takes 35 minutes.", "A ticket costs 2 euros."],
        ),
        (
            "Tank T-902 holds oil. Tank T\u2011903 holds water. Tank T904 holds sand.",
            "What does tank T-903 hold?",
            ["Tank T\u2011903 holds water."],
        ),
        (
            "A sala 12 tem 30 lugares. A sala 14 tem 55 lugares. As salas fecham às 18h.",
            "Quantos lugares tem a sala 14?",
            ["A sala 14 tem 55 lugares.", "As salas fecham às 18h."],
        ),
        (
            "Halle B fasst 800 Paletten. Halle C fasst 1.200 Paletten.",
            "Wie viele Paletten fasst Halle C?",
            ["Halle C fasst 1.200 Paletten."],
        ),
        (
            "Revenue in Q3 was 4 million. Revenue in Q4 was 6 million.",
            "What was the revenue in Q4?",
            ["Revenue in Q4 was 6 million."],
        ),
        # What is said of a series holds for its members, and HX-11S is no member of HX-11.
        (
            "The KV3 pumps need VG 220 oil. The KV3-20 weighs 9 kg. The KV3-35 weighs 12 kg.",
            "How heavy is the KV3-20?",
            ["The KV3 pumps need VG 220 oil.", "The KV3-20 weighs 9 kg."],
        ),
        (
            "The HX-11 has 30 plates. The HX-11S has 34 plates. The HX-9 has 20 plates.",
            "How many plates does the HX-11S have?",
            ["The HX-11S has 34 plates."],
        ),
        # A sentence about both is about the one.
        (
            "Unlike T-902, tank T-903 is heated. Tank T-902 is cold.",
            "Is tank T-903 heated?",
            ["Unlike T-902, tank T-903 is heated."],
        ),
    ],
)
def test_sentences_about_another_of_the_kind_are_last(
    text: str, question: str, kept: list[str]
) -> None:
    assert list_kept(text, question) == kept


@pytest.mark.parametrize(
    ("text", "question"),
    [
        # The others are what the question is about.
        ("Tank T-902 holds 5 liters. Tank T-903 holds 9 liters.", "Which holds more than T-902?"),
        ("Hall B has 8 doors. Hall C has 9 doors.", "How do hall B and hall C differ?"),
        # Nothing is about the thing itself: whether to refuse is decided by the documents.
        ("Tank T-902 holds 5 liters. Tank T-904 holds 9 liters.", "What does tank T-903 hold?"),
        ("The KV3 needs oil. The KV3-20 weighs 9 kg.", "Which oil do the KV3 pumps need?"),
        # Quantities designate nothing.
        ("The day pass costs 9 euros. The week pass costs 12 euros.", "Is 12 euros a fair price?"),
        ("It opens at 10:30. It closes at 18:45.", "What happens at 10:30?"),
        ("The hall has 12 doors and 30 seats.", "Which hall has 12 doors?"),
    ],
)
def test_all_sentences_stay_where_nothing_is_told_apart(text: str, question: str) -> None:
    assert len(list_kept(text, question)) == text.count(".")


def test_codes_and_labels_have_one_form() -> None:
    assert find_designations("Is KX-4430 in hall B or hall C?") == {
        "kx": {("4430",)},
        "hall": {("b",), ("c",)},
    }
    assert index_designations("Aurora-7, AURORA7, Aurora 07") == {stem_word("aurora"): {("7",)}}
    assert index_designations("KV3-20, kv-3/20") == {"kv": {("3", "20")}}
    # Codes that begin with digits are of the kind of their form.
    found = index_designations("12-AB-34, 17 AB 90, 17-AB-90")
    assert found["0-ab-0"] == {("12-ab-34",), ("17-ab-90",)}


@pytest.mark.parametrize(
    ("text", "question", "missing"),
    [
        (
            "The Aurora 5 boiler was replaced.",
            "When was the Aurora 7 boiler replaced?",
            ["Aurora 7"],
        ),
        ("The Aurora 7 boiler was replaced.", "When was the Aurora 7 boiler replaced?", []),
        # A single other label behind a common noun shows nothing: "the second phase".
        ("In phase 1 the roof was built.", "When does phase 2 start?", []),
        ("In phase 1 and phase 3 it rains.", "When does phase 2 start?", ["phase 2"]),
    ],
)
def test_name_with_another_number_alone_is_missing(
    text: str, question: str, missing: list[str]
) -> None:
    plan = plan_query(question, "en", GuessedLanguageDetector())
    assert find_missing_terms([text], plan, with_names=True) == missing


def link(question: str, index: MemoryIndex, *names: str) -> list[str]:
    """Return the linked names of documents with these titles, as the question writes them."""
    documents = [
        NamedDocument(fold_document_name(name), view.document_id, view.chunk_id)
        for name in names
        for view in index.views.values()
        if view.title == name
    ]
    links = link_documents(question, list(find_name_spans(question)), documents)
    return [question[one.span.start : one.span.end] for one in confirm_links(links, index.views)]


def make_index(**texts: str) -> MemoryIndex:
    index = MemoryIndex()
    for title, text in texts.items():
        name = title.replace("_", " ")
        index.add(IndexedDocument(name, [[IndexedChild(text)]], title=name))
    return index


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("The Half-Naked Truth", "half naked truth"),
        ("Ciência da Computação", "ciencia da computacao"),
        ("O'Brien's  Café (2. ed.)", "obriens cafe 2 ed"),
        ("Sylvia Burka", "sylvia burka"),
        ("A", "a"),
    ],
)
def test_names_fold_to_keys(name: str, key: str) -> None:
    assert fold_document_name(name) == key


def test_longest_title_in_question_is_linked() -> None:
    index = make_index(Heron_Dam="Heron Dam was built.", Heron_Dam_Annex="Heron Dam Annex holds.")
    question = "Who built Heron Dam Annex and why?"
    assert link(question, index, "Heron Dam", "Heron Dam Annex") == ["Heron Dam Annex"]


def test_possessive_and_lower_case_names_are_linked() -> None:
    index = make_index(Mira_Koslov="Mira Koslov (born 1954) is a skater.")
    assert link("Where did Mira Koslov's husband die?", index, "Mira Koslov") == ["Mira Koslov"]
    assert link("where was mira koslov born?", index, "Mira Koslov") == ["mira koslov"]


def test_title_that_is_a_topic_is_not_linked() -> None:
    text = "Heat transfer matters. In heat transfer, heat transfer by air is the slowest of all."
    index = make_index(Heat_transfer=text)
    assert link("What is the heat transfer of a wall?", index, "Heat transfer") == []


def test_address_is_cut_from_question() -> None:
    question = 'SUPPLY AGREEMENT (Acme, Inc. "Seller"; Bolt (Malta) Ltd): Which law governs?'
    span = next(span for span in find_name_spans(question) if span.key == "supply agreement")
    assert find_ask(question, span) == "Which law governs?"


@pytest.mark.parametrize(
    "question",
    ["Which law governs the Supply Agreement?", "Supply Agreement: what?", "Supply Agreement law"],
)
def test_mention_is_not_cut(question: str) -> None:
    span = next(span for span in find_name_spans(question) if span.key == "supply agreement")
    assert find_ask(question, span) is None


def test_shared_name_weighs_less() -> None:
    index = MemoryIndex()
    for number in range(4):
        index.add(IndexedDocument(f"d{number}", [[IndexedChild("Heron Dam")]], title="Heron Dam"))
    documents = [
        NamedDocument("heron dam", view.document_id, view.chunk_id) for view in index.views.values()
    ]
    question = "Who built Heron Dam?"
    links = link_documents(question, list(find_name_spans(question)), documents)
    assert set(weigh_documents(links).values()) == {0.25}
    assert list_first_chunks(links) == []
    links = link_documents(question, list(find_name_spans(question)), documents[:3])
    found = [hit.chunk_id for hit in list_first_chunks(links)]
    assert found == [document.chunk_id for document in documents[:3]]
