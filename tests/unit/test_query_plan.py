from __future__ import annotations

import time
from dataclasses import dataclass

import pytest

from retrieval.question.query_plan import (
    find_written_names,
    plan_query,
)
from retrieval.question.words import LexemeIndex, extract_content_words, guess_language
from retrieval.ranking.candidate_retrieval import choose_channels
from retrieval.ranking.foreign_hits import filter_foreign_hits, find_foreign_hits
from retrieval.ranking.routing import choose_route
from schemas.channels import CHANNELS, LexicalProfile, SemanticProfile
from schemas.ports.search import Hit
from schemas.profiles import Profile
from schemas.questions import SearchRequest
from tests.unit.retrieval_fakes import GuessedLanguageDetector, LowercaseNameFolder
from tests.unit.retrieval_harness import make_harness


def make_plan(question: str, language: str | None = None):  # type: ignore[no-untyped-def]
    return plan_query(question, language, GuessedLanguageDetector(), LowercaseNameFolder())


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
def test_language_is_guessed_from_function_words(question: str, language: str | None) -> None:
    assert guess_language(question) == language


def test_requested_language_is_trusted() -> None:
    assert (
        make_plan("What is this?", "pt-BR").language == "pt"
        and make_plan("What is this?", "pt-BR").language_sure
    )


@dataclass
class FixedDetector:
    language: str | None

    def detect(self, text: str) -> str | None:
        return self.language


@pytest.mark.parametrize(
    ("question", "detected", "expected"),
    [
        # Few function words, and the dictionary.
        ("Por que zumbe a bomba sem rodar?", None, ("pt", True)),
        ("Por que zumbe a bomba sem rodar?", "es", ("pt", True)),
        ("Por que zumbe a bomba sem rodar?", "pt", ("pt", True)),
        # A word of the other language is part of a name.
        ("Quem dirige a biblioteca de Marlow Street?", None, ("pt", True)),
        # The dictionary alone.
        ("caução pomar", "pt", ("pt", True)),
        ("caução pomar", "es", ("es", False)),
        ("caução pomar", None, (None, False)),
        ("horario de la biblioteca municipal", "es", ("es", False)),
    ],
)
def test_language_is_sure_if_two_indications_agree(
    question: str, detected: str | None, expected: tuple[str, bool]
) -> None:
    plan = plan_query(question, None, FixedDetector(detected), LowercaseNameFolder())
    assert (plan.language, plan.language_sure) == expected


def test_language_of_codes_is_unknown() -> None:
    assert make_plan("MX-200 torque").language is None


def test_names_are_capitalized_or_quoted_spans() -> None:
    assert list(find_written_names('Does Harbour Estates own "the red barn" in Porto?')) == [
        "the red barn",
        "Does Harbour Estates",
        "Harbour Estates",
        "Porto",
    ]
    assert list(find_written_names("Where is the contract?")) == []


@pytest.mark.parametrize(
    ("question", "found"),
    [
        ("Qual é a relação entre a água e o óleo?", []),
        ("Onde está a Ângela de Évora?", ["Ângela de Évora"]),
    ],
)
def test_accented_letter_starts_a_name_only_if_capital(question: str, found: list[str]) -> None:
    assert list(find_written_names(question)) == found
    assert choose_route(SearchRequest(query=question), make_plan(question)).route.mode == "hybrid"


@pytest.mark.parametrize(
    ("question", "has"),
    [
        *(
            (question, False)
            for question in (
                "the",
                "What is it?",
                "What Is It?",
                "WHAT IS IT?",
                "O que é isso?",
                "É",
                "x",
            )
        ),
        *(
            (question, True)
            for question in (
                "What is the WHO?",
                "What is R?",
                "war and what it was",
                "7",
                "Quem é a Ana?",
            )
        ),
    ],
)
def test_function_words_are_no_topic_unless_capitalized(question: str, has: bool) -> None:
    assert make_plan(question).has_topic is has


def test_entity_phrases_have_up_to_four_words() -> None:
    names = make_plan("who is the director of the film Author Author").names
    assert (
        names["author author"] == 1.0
        and "director of the film" in names
        and names["director"] == 0.5
    )
    assert "who is" not in names and "the film" not in names


def test_keywords_exclude_function_words_and_keep_order() -> None:
    assert make_plan("What is the notice period of the lease?").keywords == (
        "notice",
        "period",
        "lease",
    )
    assert extract_content_words("Quantos dias de férias há em 2024?", "pt") == [
        "dias",
        "férias",
        "2024",
    ]


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
def test_word_matches_its_lexeme(word: str, lexeme: str, same: bool) -> None:
    assert (LexemeIndex([lexeme]).find(word) is not None) is same


def test_longest_matching_lexeme_wins() -> None:
    assert LexemeIndex(["org", "organiz", "organ", "pump"]).find("organização") == "organiz"
    assert LexemeIndex(["férias", "ferias"]).find("férias") == "férias"


def test_question_is_truncated_to_64_content_words() -> None:
    long = " ".join(f"the word{number}" for number in range(1_600))
    plan = make_plan(long)
    assert plan.keywords == tuple(f"word{number}" for number in range(64))
    assert plan.question.endswith("word63 the")
    assert make_plan("What is the rent?").question == "What is the rent?"


def test_long_question_lexeme_lookup_is_bounded() -> None:
    lexemes = [f"word{number}" for number in range(1_600)]

    def measure(words: int) -> float:
        question = " ".join(lexemes[:words])
        started = time.thread_time()
        index = LexemeIndex(lexemes)
        assert all(index.find(word) for word in make_plan(question).keywords)
        return time.thread_time() - started

    # The minimum of many short runs: a busy machine slows single runs by more than the factor that
    # counts.
    assert min(measure(1_600) for _ in range(20)) < 6 * min(measure(64) for _ in range(20))


def test_channel_disabled_by_profile_is_not_queried() -> None:
    profile = Profile(semantic=SemanticProfile(enabled=False))
    request = SearchRequest(query="x")
    assert choose_channels(choose_route(request, make_plan("x")).route, request, profile) == tuple(
        channel for channel in CHANNELS if channel != "semantic"
    )


def test_foreign_language_hits_are_dropped_only_in_large_corpus() -> None:
    index = make_harness().index
    hits = [Hit(view.chunk_id, view.document_id, 1.0) for view in index.views.values()]
    plan = make_plan("Quantos dias de férias têm os trabalhadores?")
    assert len(find_foreign_hits(hits, index.views, plan)) == len(hits) - 1
    small, smaller = LexicalProfile(), LexicalProfile(foreign_below=100)
    assert len(filter_foreign_hits(hits, index.views, plan, small, corpus_size=200)) == 1
    assert filter_foreign_hits(hits, index.views, plan, small, corpus_size=199) == hits
    assert len(filter_foreign_hits(hits, index.views, plan, smaller, corpus_size=199)) == 1
    assert find_foreign_hits(hits, index.views, make_plan("férias 2024")) == []
