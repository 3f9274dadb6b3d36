from __future__ import annotations

import time

import pytest

from retrieval.gate import foreign_hits, keep_native
from retrieval.plan import plan, written_names
from retrieval.route import channels_of, escalated, route
from retrieval.words import LexemeIndex, content_words, guess_language
from schemas.ports.search import Hit
from schemas.profiles import ChannelProfile, Profile
from schemas.questions import SearchRequest
from tests.unit.retrieval_corpus import house
from tests.unit.retrieval_fakes import Folded, GuessedLanguages


def planned(question: str, language: str | None = None):  # type: ignore[no-untyped-def]
    return plan(question, language, GuessedLanguages(), Folded())


@pytest.mark.parametrize(
    ("question", "language"),
    [
        ("What is the notice period of the lease?", "en"),
        ("Qual é o prazo de aviso do contrato de arrendamento?", "pt"),
        ("¿Cuál es el plazo de preaviso del contrato?", "es"),
        ("Quel est le délai de préavis du bail ?", "fr"),
        ("Wie lang ist die Kündigungsfrist des Vertrags?", "de"),
        ("MX-200 torque", None),
    ],
)
def test_function_words_tell_the_language(question: str, language: str | None) -> None:
    assert guess_language(question) == language


def test_a_given_language_is_believed() -> None:
    assert planned("What is this?", "pt-BR").language == "pt" and planned("What is this?", "pt-BR").language_sure


def test_a_language_that_is_barely_ahead_is_taken_where_nothing_else_tells_and_is_not_sure() -> None:
    asked = planned("Por que zumbe a bomba sem rodar?")
    assert (asked.language, asked.language_sure) == ("pt", False)
    assert planned("MX-200 torque").language is None


def test_names_are_capitalised_or_quoted_spans_but_not_a_lone_first_word() -> None:
    assert list(written_names('Does Harbour Estates own "the red barn" in Porto?')) == ["the red barn", "Does Harbour Estates", "Harbour Estates", "Porto"]
    assert list(written_names("Where is the contract?")) == []


@pytest.mark.parametrize(("question", "found"), [("Qual é a relação entre a água e o óleo?", []), ("Onde está a Ângela de Évora?", ["Ângela de Évora"])])
def test_a_letter_with_an_accent_begins_a_name_only_where_it_is_a_capital_and_begins_a_word(question: str, found: list[str]) -> None:
    assert list(written_names(question)) == found
    assert route(SearchRequest(query=question), planned(question)).mode == "hybrid"


@pytest.mark.parametrize(
    ("question", "has"),
    [
        *((question, False) for question in ("the", "What is it?", "What Is It?", "WHAT IS IT?", "O que é isso?", "É", "x")),
        *((question, True) for question in ("What is the WHO?", "What is R?", "war and what it was", "7", "Quem é a Ana?")),
    ],
)
def test_function_words_alone_are_no_topic_unless_one_is_written_as_a_name(question: str, has: bool) -> None:
    assert planned(question).has_topic is has


def test_phrases_of_up_to_four_words_are_looked_up_and_written_names_count_most() -> None:
    names = planned("who is the director of the film Author Author").names
    assert names["author author"] == 1.0 and "director of the film" in names and names["director"] == 0.5
    assert "who is" not in names and "the film" not in names


def test_keywords_leave_function_words_out_and_keep_order() -> None:
    assert planned("What is the notice period of the lease?").keywords == ("notice", "period", "lease")
    assert content_words("Quantos dias de férias há em 2024?", "pt") == ["dias", "férias", "2024"]


@pytest.mark.parametrize(
    ("word", "lexeme", "same"),
    [
        ("studies", "studi", True),
        ("flow", "flow", True),
        ("férias", "fer", True),
        ("organização", "organiz", True),
        ("lease", "least", False),
        ("pump", "price", False),
        ("cat", "catalogu", False),
    ],
)
def test_a_word_and_its_lexeme_are_recognised(word: str, lexeme: str, same: bool) -> None:
    assert (LexemeIndex([lexeme]).find(word) is not None) is same


def test_longest_lexeme_is_found_among_many() -> None:
    assert LexemeIndex(["org", "organiz", "organ", "pump"]).find("organização") == "organiz"
    assert LexemeIndex(["férias", "ferias"]).find("férias") == "férias"


def test_only_the_first_64_content_words_of_a_question_count() -> None:
    long = " ".join(f"the word{number}" for number in range(1_600))
    asked = planned(long)
    assert asked.keywords == tuple(f"word{number}" for number in range(64))
    assert asked.question.endswith("word63 the")
    assert planned("What is the rent?").question == "What is the rent?"


def test_long_question_is_weighed_as_fast_as_one_of_64_words() -> None:
    lexemes = [f"word{number}" for number in range(1_600)]

    def measure(words: int) -> float:
        question = " ".join(lexemes[:words])
        started = time.thread_time()
        index = LexemeIndex(lexemes)
        assert all(index.find(word) for word in planned(question).keywords)
        return time.thread_time() - started

    # The minimum of many short runs: a busy machine slows single runs by more than the factor that counts.
    assert min(measure(1_600) for _ in range(20)) < 6 * min(measure(64) for _ in range(20))


def test_two_names_and_a_word_for_what_joins_them_ask_the_graph() -> None:
    question = "What is the relationship between Harbour Estates and Acme Corporation?"
    assert route(SearchRequest(query=question), planned(question)).mode == "graph"
    assert route(SearchRequest(query="What is the rent?"), planned("What is the rent?")).mode == "hybrid"


def test_only_a_rules_choice_is_widened() -> None:
    question = "What is the relationship between Harbour Estates and Acme Corporation?"
    by_rules = route(SearchRequest(query=question), planned(question))
    wider = escalated(by_rules, "nothing was found")
    assert wider is not None and (wider.mode, wider.escalated_from, wider.reason) == ("hybrid", "graph", "nothing was found")
    assert escalated(route(SearchRequest(query=question, mode="graph"), planned(question)), "nothing") is None


def test_a_channel_that_the_profile_switches_off_is_never_asked() -> None:
    profile = Profile(semantic=ChannelProfile(enabled=False))
    request = SearchRequest(query="x")
    assert channels_of(route(request, planned("x")), request, profile) == ("lexical", "graph")


def test_words_of_another_language_are_dropped_only_in_a_corpus_that_is_large_enough() -> None:
    index = house().index
    hits = [Hit(view.chunk_id, view.document_id, 1.0) for view in index.views.values()]
    asked = planned("Quantos dias de férias têm os trabalhadores?")
    assert len(foreign_hits(hits, index.views, asked)) == len(hits) - 1
    assert len(keep_native(hits, index.views, asked, corpus_size=1000)) == 1
    assert keep_native(hits, index.views, asked, corpus_size=100) == hits
    assert foreign_hits(hits, index.views, planned("férias 2024")) == []
