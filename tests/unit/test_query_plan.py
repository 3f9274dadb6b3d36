""""""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import pytest

from retrieval.question.answer_values import (
    choose_cell,
    choose_value,
    detect_answer_type,
    find_value,
)
from retrieval.question.query_plan import detect_intent, find_written_names, plan_query
from retrieval.question.words import LexemeIndex, extract_content_words, guess_language
from retrieval.ranking import candidate_retrieval
from retrieval.ranking.candidate_retrieval import choose_channels
from retrieval.ranking.fusion import filter_foreign_hits, find_foreign_hits
from retrieval.ranking.planning import choose_route
from schemas.channels import CHANNEL_DECLARATIONS, SemanticProfile
from schemas.planning import Intent
from schemas.ports.search import Hit
from schemas.profiles import FusionProfile, Profile
from schemas.questions import Route, SearchRequest
from tests.support.channels import DEFAULT_CHANNELS
from tests.unit.retrieval_fakes import GuessedLanguageDetector, ScriptedChat, write_reply
from tests.unit.retrieval_harness import make_harness


@pytest.mark.parametrize(
    ("question", "intent"),
    [
        ("Why was the ferry out of service?", "why"),
        ("What is the reason for the delay?", "why"),
        ("Por que a ponte está fechada?", "why"),
        ("Porque é que o mercado fecha?", "why"),
        ("¿Por qué cerró el puente?", "why"),
        ("Pourquoi le pont est-il fermé ?", "why"),
        ("Warum ist die Brücke gesperrt?", "why"),
        ("Compare the two budgets.", "comparison"),
        ("What is the difference between the summer and the winter timetable?", "comparison"),
        ("Which is deeper, the Lower Channel or the inner harbour?", "comparison"),
        ("Is the fee higher than last year?", "comparison"),
        ("Qual é a diferença entre as duas taxas?", "comparison"),
        ("How many documents mention the barge?", "counting"),
        ("In how many contracts is Acme named?", "counting"),
        ("Quantos contratos referem a caução?", "counting"),
        ("How many crossings were there in total?", "counting"),
        ("Quantas travessias houve ao todo?", "counting"),
        ("Qual é a taxa aplicada no total da fatura?", "factoid"),
        ("How is Halvik related to the wreck?", "relation"),
        ("What connects the trust with the dredger?", "relation"),
        ("Que ligação há entre o banco e a construtora?", "relation"),
        ("What happens if a crossing is cancelled?", "scenario"),
        ("Se a presidente estiver ausente, quem decide?", "scenario"),
        ("How many days of notice must the operator give?", "factoid"),
        ("For how many days may the crane be idle, more than ten?", "factoid"),
        ("Quem dirige os bombeiros?", "factoid"),
        ("Is smoking allowed?", "factoid"),
        ("MX-200 torque", "lookup"),
        ("the torque of the pump fell when the seal was replaced in May.", "other"),
    ],
)
def test_intent_follows_the_question(question: str, intent: Intent) -> None:
    assert detect_intent(question) == intent


@pytest.mark.parametrize(
    ("question", "language", "note"),
    [
        ("Why does the lease of the warehouse end?", "en", "no cause was inferred"),
        ("Is the bearing seal cheaper than the impeller?", "en", "nothing was compared"),
        ("How many documents name Harbour Estates?", "en", "nothing was counted"),
        ("Por que os trabalhadores têm férias?", "pt", "nenhuma causa foi deduzida"),
        ("When does the lease of the warehouse end?", "en", None),
    ],
)
async def test_quotes_say_what_they_cannot_do(
    question: str, language: str, note: str | None
) -> None:
    response = await make_harness().query(question, language=language)
    assert response.answer is not None and response.trace.plan is not None
    marked = [text for text in response.limitations if text.startswith(("Evidence", "Somente"))]
    assert len(marked) == (note is not None) and (note is None or note in marked[0])


async def test_written_answer_is_more_than_evidence() -> None:
    built = make_harness()
    built.chat = ScriptedChat(
        write_reply(("The lease of the warehouse ends on 31 March 2027.", [1]))
    )
    response = await built.query("Why does the lease of the warehouse end?")
    assert response.answer and not any("Evidence only" in text for text in response.limitations)


@pytest.mark.parametrize(
    ("question", "sentence", "value"),
    [
        (
            "How much is the fee for the second boat?",
            "The fee is 210 euros for the first boat and 90 euros for the second.",
            "90 euros",
        ),
        (
            "How many days may a guest stay?",
            "Two guests may stay for 14 days and pay 3 keys.",
            "14",
        ),
        (
            "To how many Nm are the bolts of the QR-35 tightened?",
            "Bolts are tightened to 45 Nm for the QR-20, 60 Nm for the QR-35.",
            "60",
        ),
        ("How long is the notice?", "Artigo 3.º O prazo é de vinte dias.", "vinte"),
        ("How many steps are there?", "She counts ninety-seven steps.", "ninety-seven"),
        ("How many rooms are there?", "A one-way street leads to five rooms.", "five"),
        ("Who keeps the keys?", "The keys are kept by Nora Kestrel.", "Nora Kestrel"),
        (
            "When does the term end?",
            "It begins on 1 May 2024 and ends on 30 June 2029.",
            "30 June 2029",
        ),
        (
            "What was the number of employees at the end of 2024?",
            "At the end of 2024 there were 203 employees in six offices.",
            "203",
        ),
        (
            "Wie hoch war die Anzahl der Mitarbeiter?",
            "In sechs Werken arbeiten 203 Mitarbeiter.",
            "203",
        ),
        ("How wide is the QR-20?", "The QR-20 weighs 9.4 kg and is 31 cm wide.", "31"),
        ("De quanto é a caução?", "A caução é de duas rendas, isto é, 2.300 euros.", "2.300"),
        ("Who led the trial?", "The trial was led by Dr. Henrike Aldous.", "Dr. Henrike Aldous"),
        ("Who muted the alarm?", "The alarm was muted in April.", None),
        # Nothing tells the two numbers apart.
        ("How many are there?", "Room 12 lies above room 14.", None),
        ("What does an employee who leaves lose?", "For a year, Nora pays.", None),
    ],
)
def test_value_nearest_to_the_words_of_the_question_is_chosen(
    question: str, sentence: str, value: str | None
) -> None:
    span = choose_value(detect_answer_type(question), sentence, question)
    assert (sentence[slice(*span)] if span else None) == value


def test_form_of_a_word_in_the_question_is_no_answer() -> None:
    cell = choose_cell(
        ("Lamp", "Meaning", "Remedy"),
        ["Flashing blue", "Scale", "Descale the machine"],
        "What does it mean that the blue lamp flashes?",
        None,
    )
    assert cell == 1


def test_heated_feed_water_costs_nothing() -> None:
    assert detect_answer_type("What is the limit for the feed water temperature?") != "money"


SITES = ("Site", "Opened", "Staff")


@pytest.mark.parametrize(
    ("question", "cell"),
    [
        ("How many staff does Porto have?", 2),
        ("When was Porto opened?", 1),
        ("What about Porto?", None),
    ],
)
def test_cell_under_the_column_of_the_question_is_chosen(question: str, cell: int | None) -> None:
    answer_type = detect_answer_type(question)
    assert choose_cell(SITES, ["Porto", "2023", "64"], question, answer_type) == cell


@pytest.mark.parametrize(
    ("question", "text", "value"),
    [
        ("What is the speed limit?", "From 6 April it works between buoys 11 and 19.", None),
        ("What is the speed limit?", "Vessels pass at no more than 6 knots.", "6"),
        ("What is the weight?", "Weight (kg): 14", "14"),
        ("How many people use the weight room?", "The weight room has 14 users.", "14"),
        ("How high is the fee?", "The fee is 3 euros.", "3"),
    ],
)
def test_value_has_the_unit_of_the_dimension(question: str, text: str, value: str | None) -> None:
    span = find_value(detect_answer_type(question), text, question)
    assert (text[slice(*span)] if span else None) == value


def make_plan(question: str, language: str | None = None):  # type: ignore[no-untyped-def]
    return plan_query(question, language, GuessedLanguageDetector())


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
    plan = plan_query(question, None, FixedDetector(detected))
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
        channel for channel in DEFAULT_CHANNELS if channel != "semantic"
    )


def test_channel_of_default_weight_0_is_searched_where_it_is_weighed_or_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    declared = [replace(one, weight=0.0) for one in CHANNEL_DECLARATIONS if one.name == "graph"]
    monkeypatch.setattr(candidate_retrieval, "CHANNEL_DECLARATIONS", declared)
    route = Route(mode="hybrid", decided_by="rules", reason="")
    asked, named = SearchRequest(query="x"), SearchRequest(query="x", channels=["graph"])
    weighed, unweighed = (Profile(fusion=FusionProfile(graph=weight)) for weight in (0.5, 0))
    assert choose_channels(route, asked, unweighed) == ()
    assert choose_channels(route, asked, weighed) == ("graph",)
    assert choose_channels(route, named, unweighed) == ("graph",)


def test_foreign_language_hits_are_dropped_only_in_large_corpus() -> None:
    index = make_harness().index
    hits = [Hit(view.chunk_id, view.document_id, 1.0) for view in index.views.values()]
    plan = make_plan("Quantos dias de férias têm os trabalhadores?")
    assert len(find_foreign_hits(hits, index.views, plan)) == len(hits) - 1
    assert len(filter_foreign_hits(hits, index.views, plan, corpus_size=200)) == 1
    assert filter_foreign_hits(hits, index.views, plan, corpus_size=199) == hits
    assert find_foreign_hits(hits, index.views, make_plan("férias 2024")) == []
