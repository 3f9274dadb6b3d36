"""Numbers in words have the value that they say."""

from __future__ import annotations

import pytest

from evaluation.answers_eval import contains, normalize_text
from retrieval.answering.extractive_answer import mark_place
from retrieval.question.answer_values import choose_value
from retrieval.question.numerals import find_spelled_numbers
from retrieval.question.quantities import find_quantities
from retrieval.question.question_terms import (
    find_alternatives,
    find_labels,
    find_question_terms,
    index_text_terms,
    list_code_spellings,
)
from retrieval.question.words import (
    blank_struck,
    extract_content_words,
    extract_word_keys,
    split_words,
    stem_word,
)
from retrieval.redaction import Redactor
from schemas.profiles import RedactionProfile


@pytest.mark.parametrize(
    ("words", "digits"),
    [
        ("plant three", "plant 3"),
        ("Werk zwölf", "Werk 12"),
        ("zona sete", "zona 7"),
        ("planta cuatro", "planta 4"),
        ("usine neuf", "usine 9"),
    ],
)
def test_spelled_number_has_the_key_of_its_digits(words: str, digits: str) -> None:
    assert extract_word_keys(words) == extract_word_keys(digits)


def test_date_in_digits_has_the_key_of_its_month() -> None:
    assert extract_word_keys("July") <= extract_word_keys("| 2025-07 | 58900 |")
    assert not extract_word_keys("August") <= extract_word_keys("| 2025-07 | 58900 |")


def test_scripts_without_spaces_are_cut_into_pairs() -> None:
    assert split_words("停车费是5元。OK") == ["停车", "车费", "费是", "5", "元", "ok"]
    assert split_words("入場料は") == ["入場", "場料", "料は"]


def test_acronym_in_capitals_is_no_function_word() -> None:
    assert "who" in extract_content_words("When is the WHO visit?", "en")
    assert "who" not in extract_content_words("Who visits?", "en")
    assert "who" not in extract_content_words("WHO VISITS?", "en")


def test_possessives_and_elided_articles_share_a_key() -> None:
    assert {stem_word(word) for word in ("Maria's", "Maria’s", "maria")} == {stem_word("Maria")}
    assert stem_word("l'hôtel") == stem_word("d’hotel") == stem_word("hotel")


def test_struck_text_is_blanked_in_place() -> None:
    assert blank_struck("costs ~~90~~ 72") == "costs        72"
    assert blank_struck("a ~~ b") == "a ~~ b"


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("four hundred and fifty euros", [450]),
        ("a hundred and twenty boats", [120]),
        ("two thousand five hundred", [2500]),
        ("nineteen hundred", [1900]),
        ("three million two hundred thousand", [3_200_000]),
        ("ninety-seven of one hundred and one", [97, 101]),
        ("quatrocentos e cinquenta reais", [450]),
        ("dois mil e quinhentos", [2500]),
        ("vinte e três dias", [23]),
        ("cuatrocientos cincuenta euros", [450]),
        ("veintidós y treinta y dos", [22, 32]),
        ("quatre cent cinquante", [450]),
        ("quatre-vingt-dix-sept ou soixante et onze", [97, 71]),
        ("vierhundertfünfzig Euro", [450]),
        ("zweitausenddreihundertfünfundzwanzig", [2325]),
        # Not one number: two of them, one simple word, or none.
        ("three and four boats", []),
        ("seis e sete", []),
        ("cinco", []),
        ("a one-way ticket for two hundred-litre drums", []),
        ("hundred", []),
        ("fifty cents and twenty euros", []),
    ],
)
def test_numbers_in_words_are_read(text: str, values: list[int]) -> None:
    assert [number.value for number in find_spelled_numbers(text)] == values


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("The deposit is four hundred and fifty euros.", ("450", "EUR")),
        ("A caução é de mil e duzentos reais.", ("1200", "BRL")),
        ("Die Kaution beträgt dreihundertfünfzig Euro.", ("350", "EUR")),
        ("La fianza es de doscientos cincuenta euros.", ("250", "EUR")),
        ("La caution est de cinq cents euros.", ("500", "EUR")),
        ("It costs two million dollars.", ("2000000", "USD")),
    ],
)
def test_amounts_in_words_are_amounts_of_money(text: str, amount: tuple[str, str]) -> None:
    (quantity,) = find_quantities(text)
    assert (quantity.kind, quantity.value, quantity.unit) == ("money", *amount)


@pytest.mark.parametrize(
    ("question", "sentence", "marked"),
    [
        (
            "What is the price of the hall?",
            "The hall costs four hundred and fifty euros.",
            "**four hundred and fifty euros** (450)",
        ),
        (
            "Quantos dias dura o curso?",
            "O curso dura vinte e três dias.",
            "**vinte e três** (23) dias",
        ),
        ("How many boats fit?", "The pier takes twelve boats.", "**twelve** boats"),
        ("How many boats fit?", "The pier takes 22 boats.", "**22** boats"),
    ],
)
def test_marked_number_in_several_words_is_shown_in_digits_too(
    question: str, sentence: str, marked: str
) -> None:
    answer_type = "money" if "price" in question else "number"
    place = choose_value(answer_type, sentence, question)
    assert place is not None
    shown = mark_place(sentence, place, Redactor(RedactionProfile(), question))
    assert marked in shown
    assert not marked.endswith("(450)") or contains(normalize_text(shown), "450")


@pytest.mark.parametrize(
    ("question", "language", "codes", "names"),
    [
        ("What is the warranty of an HX-12?", "en", ("HX-12",), ()),
        ("Who is on call in week 45?", "en", ("45",), ()),
        ("What did Bergen Marine earn in 2014?", "en", ("2014",), ("Bergen", "Marine")),
        # The first word of a question or sentence, and a quantity of one digit, are no terms.
        ("My dog ate 3 shoes. Who pays?", "en", (), ()),
        ("¿Cuánto cuesta?", "es", (), ()),
        # German capitalizes every noun.
        ("Was kostet der Filter F7?", "de", ("F7",), ()),
        ("WHO PAYS THE RENT OF UNIT 7C?", "en", ("7C",), ()),
    ],
)
def test_codes_and_names_of_question_are_found(
    question: str, language: str, codes: tuple[str, ...], names: tuple[str, ...]
) -> None:
    terms = find_question_terms(question, language)
    assert (terms.codes, terms.names) == (codes, names)


@pytest.mark.parametrize(
    ("question", "identifiers"),
    [
        ("Who is on call in week 45?", ("45",)),
        ("What does § 52 of the rules demand?", ("52",)),
        ("What did it earn in 2014?", ("2014",)),
        ("What is the rent of Unit 7C?", ("7C",)),
        ("May I bring 15 guests?", ()),
        ("Is it open at 10:30 or at 21h?", ()),
        ("Is there a 25% discount above 1,500 euros?", ()),
        ("What happened on 3/5/2024?", ()),
    ],
)
def test_quantities_are_no_identifiers(question: str, identifiers: tuple[str, ...]) -> None:
    assert find_question_terms(question, "en").identifiers == identifiers


def test_capitals_of_a_title_mark_no_names() -> None:
    assert find_question_terms("What Is the Annual Fee for Members?", "en").names == ()


@pytest.mark.parametrize(
    ("text", "code", "is_held"),
    [
        ("The warranty of an HX-9 is 36 months.", "HX-12", False),
        ("The warranty of an hx-12 is 36 months.", "HX-12", True),
        ("Models HX-11S and HX-9", "HX-11", False),
        ("Duty rota, weeks 36 to 41", "38", True),
        ("Duty rota, weeks 36 to 41", "45", False),
        ("Semanas 36 a 41", "40", True),
        ("The fee is 2,450 euros.", "2450", True),
        ("The fee is 12,450 euros.", "450", True),
    ],
)
def test_code_is_matched_as_a_whole_or_within_a_range(text: str, code: str, is_held: bool) -> None:
    assert index_text_terms([text]).holds_code(code) is is_held


@pytest.mark.parametrize(
    ("text", "is_held"),
    [
        ("| 2025-07 | 58900 |", True),
        ("Signed at 2025-07-03T10:00.", True),
        ("Geliefert am 3.7.2025.", True),
        ("| 2025-08 | 59100 |", False),
        ("Order A-2025-07, size 1234-07, room 2025-13.", False),
    ],
)
def test_month_is_held_by_a_date_in_digits(text: str, is_held: bool) -> None:
    terms = index_text_terms([text])
    assert terms.holds_name("July") is is_held
    assert terms.holds_name("julho") is is_held


PLANTS = (
    "| Month | Plant 1 | Plant 2 | Plant 3 |\nPhases 1, 2 and 4 are paid; phase 5 is not. "
    "Zones 6 to 9 are closed. The wreck lies at buoy 14, near buoys 17 and 19, and a lamp 21."
)


@pytest.mark.parametrize(
    ("question", "is_lacking"),
    [
        ("What was the output of plant 4 in July?", True),
        ("What was the output of plant four?", True),
        ("What was the output of plant three?", False),
        ("What was the output of plant 2?", False),
        ("Which phases follow phase 2?", False),
        ("Is phase 3 paid?", True),
        ("Is zone 7 open?", False),
        ("Is zone 5 open?", True),
        # Two digits are held wherever they stand.
        ("How far was buoy 21 moved?", False),
        # Nothing else of the kind is numbered, or the number counts.
        ("What does room 4 hold?", False),
        ("Which plant makes 4 pumps?", False),
        ("What was due on May 4?", False),
    ],
)
def test_numbered_thing_is_lacking_beside_others_of_its_kind(
    question: str, is_lacking: bool
) -> None:
    terms = index_text_terms([PLANTS, "May 3, May 12."])
    lacking = [terms.lacks_label(noun, number) for noun, number in find_labels(question)]
    assert any(lacking) is is_lacking


def test_numbers_behind_a_noun_that_count_the_next_word_number_nothing() -> None:
    terms = index_text_terms(["Within the last 30 days, the last 60 days and the last 90 days."])
    assert not terms.lacks_label("last", "45")


def test_alternatives_have_the_shape_of_the_missing_code() -> None:
    texts = ["The HX-9 and the HX-11 are brazed; the FT-180 is not.", "An HX-9 weighs 5 kg."]
    assert find_alternatives(["HX-12"], texts) == ["HX-11", "HX-9"]
    assert find_alternatives(["45"], ["weeks 40 and 41"]) == []


NAMES = (
    "Ms Smith-Jones leads hall 2. Mr O’Connor waits. Nurse Maria's shift ends. The Wi‑Fi is on. "
    "The L'Oréal office opened. Node.js listens. The Ph.D. grant lasts. The U.S. office has staff. "
    "A feira de Sant'Ana abre. O rio de Vila-Chã sobe. A Costa d’Oeste arde. Bosch's drill fell. "
    "Guine-Bissau vota. Baden-Württembergs Haus. The T‐shirt and the e-mail list. Jean–Luc sings."
)


@pytest.mark.parametrize(
    ("question", "missing"),
    [
        ("Which hall does Ms Smith-Jones lead?", ()),
        ("Which hall does Ms Smith–Jones's aunt lead?", ()),
        ("Which ward does Mr O'Connor lead?", ()),
        ("When does Maria’s shift end?", ()),
        ("What is the WiFi password?", ()),
        ("When did the L’Oreal office open?", ()),
        ("On which port does Node.js listen?", ()),
        ("How many staff has the U.S. office?", ()),
        ("How many staff has the US office?", ()),
        ("Quando sobe o rio de Vila Chã?", ()),
        ("Quando ardeu a Costa d'Oeste?", ()),
        ("Como vota a Guiné-Bissau?", ()),
        ("Who owns the Baden-Württemberg house?", ()),
        ("Who reads the Email list?", ()),
        ("Which hall does Ms Smith-Brown lead?", ("Smith-Brown",)),
        ("Which ward does Mr O'Brien lead?", ("O'Brien",)),
        ("Quando sobe o rio de Vila-Real?", ("Vila-Real",)),
        ("On which port does Node.py listen?", ("Node.py",)),
        ("Quando ardeu a Costa d'Oriente?", ("Oriente",)),
    ],
)
def test_names_are_held_however_they_are_punctuated(
    question: str, missing: tuple[str, ...]
) -> None:
    held = index_text_terms([NAMES])
    names = find_question_terms(question, "en").names
    assert names
    assert tuple(name for name in names if not held.holds_name(name)) == missing


@pytest.mark.parametrize(
    ("text", "code", "is_held"),
    [
        *((f"The seal KX{dash}4410 fits.", "KX-4410", True) for dash in "-‐‑‒–—―−\u00ad \u00a0"),
        *((f"The seal KX{dash}4410 fits.", "KX-4411", False) for dash in "-‑–−\u00ad "),
        ("The filter KX-5510/B", "KX5510/B", True),
        ("The filter KX-5510/B", "KX5510/C", False),
        ("Error E0042", "E-0042", True),
        ("Error E-0042", "E0043", False),
        ("The plate is 12-AB-34.", "12AB34", True),
        ("The plate is 12-AB-35", "12AB34", False),
        ("KX-44100", "KX-4410", False),
        ("NIF PT 501 234 567.", "PT501234567", True),
        ("NIF PT 501 234 568.", "PT501234567", False),
        ("It was opened in 12 cities.", "IN-12", False),
        *(
            (f"It cost 1{mark}250{mark}000 euros", code, True)
            for mark in (",", ".", " ", "'", "\u202f", "")
            for code in ("1250000", "1,250,000", "1 250 000", "1.250.000")
        ),
        ("It cost 1,250,001 euros", "1250000", False),
        ("It holds 10⁶ grains", "106", False),
        ("Bolt M8×40", "M8x40", True),
        ("Bolt M8x40", "M8×40", True),
        ("Bolt M8×45", "M8x40", False),
        ("A table of 120 × 80 cm", "120x80", True),
        ("A table of 120 × 80 cm", "120×80", True),
        ("A table of 120 × 85 cm", "120x80", False),
    ],
)
def test_codes_are_held_however_they_are_separated(text: str, code: str, is_held: bool) -> None:
    assert index_text_terms([text]).holds_code(code) is is_held


@pytest.mark.parametrize(
    ("question", "text", "is_held"),
    [
        ("When is the WHO visit?", "The WHO visit is in May.", True),
        ("When is the WHO visit?", "Those who visit pay in May.", False),
        ("What is the IT budget?", "The budget is fixed; it is 4,000.", False),
        ("Where is the US desk?", "The U.S. desk is upstairs.", True),
    ],
)
def test_acronyms_in_capitals_are_names(question: str, text: str, is_held: bool) -> None:
    (name,) = find_question_terms(question, "en").names
    assert index_text_terms([text]).holds_name(name) is is_held


LABELED = (
    "| Chamber | Set temperature |\n| --- | --- |\n| A | 40 °C |\n| B | 20 °C |\n| C | 5 °C |\n\n"
    "Docks A to D are open. The Aurora 5 heat pump is loud, and the Aurora 9 pump is not, at -7 °C."
)


@pytest.mark.parametrize(
    ("question", "is_lacking"),
    [
        ("What is the set temperature of chamber B?", False),
        ("What is the set temperature of chamber D?", True),
        ("Is dock C open?", False),
        ("Is dock E open?", True),
        ("How loud is the Aurora 9?", False),
        ("How loud is the Aurora 7?", True),
        ("When should I go to chamber A?", False),
    ],
)
def test_letters_and_numbers_behind_a_name_tell_things_apart(
    question: str, is_lacking: bool
) -> None:
    terms = index_text_terms([LABELED])
    assert any(terms.lacks_label(*label) for label in find_labels(question)) is is_lacking


@pytest.mark.parametrize(
    ("question", "spellings"),
    [
        ("Which pump does KX5510 fit?", ["KX-5510"]),
        ("Which pump does KX-5510 fit?", ["KX5510"]),
        ("Which pump does KX‑5510 fit?", ["KX5510", "KX-5510"]),
        ("Whose plate is 12-AB-34?", ["12AB34"]),
        ("What happened in 2014?", []),
        ("Who pays the rent?", []),
    ],
)
def test_codes_are_searched_joined_and_hyphenated(question: str, spellings: list[str]) -> None:
    assert list_code_spellings(question) == spellings
