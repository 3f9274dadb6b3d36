"""Find the value that a question asks for: an amount, a date, a number, a name or a table cell."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Literal

from retrieval.question.numerals import find_spelled_numbers
from retrieval.question.question_terms import find_question_terms, index_text_terms
from retrieval.question.words import (
    MONTHS,
    blank_struck,
    extract_stems,
    extract_word_keys,
    holds_form,
    strip_accents,
)

AnswerType = Literal["money", "percentage", "number", "date", "contact", "name"]

# In order: "how much does it cost" must match money before number.
_QUESTION_PATTERNS: Mapping[AnswerType, re.Pattern[str]] = {
    "percentage": re.compile(
        r"percent|por cento|porcentag|percentual|porcentaje|pourcent|prozent|what share"
        r"|interest rate|rate (?:of|does|do|is) interest|taxa de|tasa de|\btaux\b",
        re.I,
    ),
    "money": re.compile(
        r"how much\b(?:(?!how much\b).)*?\b(?:cost|pay|paid|price|fee|worth|charge|rent|owe)"
        r"|\b(?:price|cost|fee|rent|salary|budget|amount)s? of\b"
        r"|what (?:is|was|are) the (?:(?!what (?:is|was|are) the ).)*?"
        r"\b(?:price|cost|fee|rent|salary|budget|amount)s?\b"
        r"|quanto (?:custa|custou|paga|pagou|é pago|vale)"
        r"|qual (?:é |foi )?o (?:valor|preço|custo|montante)"
        r"|cuánto (?:cuesta|costó|vale|paga)"
        r"|combien coûte|quel (?:est )?(?:le )?(?:prix|coût|montant)"
        r"|\bwhat (?:do|does|did|would|will) (?:(?!\bwhat (?:do|does|did|would|will) ).)*?\bcost"
        r"|how (?:expensive|cheap)"
        r"|was kostet|wie ?viel kostet",
        re.I,
    ),
    "number": re.compile(
        r"how (?:many|long|far|old|big|large|high|much|often|quickly|fast|soon|deep|heavy|thick"
        r"|tall|wide|loud|hot|cold|early|late)\b|quant[oa]s?\b|cuánt[oa]s?\b|combien"
        r"|wie ?(?:viele?|lange|hoch|groß|oft|schwer|tief|schnell|weit|breit)"
        r"|(?:what|which|que|qual|qué|cuál|quelle?|welche[rs]?) (?:is |was |é |es |est |ist )?"
        r"(?:the |an? |a |o |el |la |le |die |der |das )?(?:\w+ ){0,2}"
        r"(?:number|temperature|torque|altitude|height|length|weight|width|depth|speed|pressure"
        r"|capacity|limit|distance|size|volume|age|rate|score|period|deadline|duration|notice"
        r"|temperatura|altura|peso|prazo|idade|número|taxa|limite|plazo|edad|température|hauteur"
        r"|poids|délai|âge|numéro|temperatur|höhe|gewicht|frist|alter|nummer)\b",
        re.I,
    ),
    "date": re.compile(
        r"\bwhen\b|what (?:date|day|year|time)|which (?:date|day|year)"
        r"|\bquando\b|(?:qual|que|em que) (?:a )?(?:data|dia|ano)"
        r"|cuándo|qué (?:fecha|día|año)|\bquand\b|quelle date"
        r"|\bwann\b|welche[ms]? (?:datum|tag|jahr)",
        re.I,
    ),
    "contact": re.compile(
        r"e-?mail|phone|telephone|telefone|teléfono|téléphone|telefon|web ?site", re.I
    ),
    # Only at the beginning: "an employee who …" asks for no name.
    "name": re.compile(
        r"^\W*(?:(?:by|to|from|with|for|a|de|por|para|com|con|à|par|an|mit|von) )?"
        r"(?:who|whom|whose|quem|quién(?:es)?|qui|wer|wem|wen)\b",
        re.I,
    ),
}
_MONTHS = (
    "january|february|march|april|may|june|july|august|september|october|november|december|"
    "janeiro|fevereiro|março|abril|maio|junho|julho|agosto|setembro|outubro|novembro|dezembro|"
    "enero|febrero|marzo|mayo|junio|julio|septiembre|octubre|noviembre|diciembre|"
    "janvier|février|mars|avril|mai|juin|juillet|août|septembre|octobre|novembre|décembre|"
    "januar|februar|märz|juni|juli|oktober|dezember"
)
_NAME_WORD = r"[^\W\d_a-zà-öø-ÿ][\w'’-]+"
_NUMBER = r"(?<!\d)\d++(?:[.,\u00a0 ]\d{3}){0,10}(?:[.,]\d++)?"
_CURRENCY = r"(?:€|£|euros?|dollars?|reais|dólares|pounds|EUR|USD|BRL|CHF)\b"
_CURRENCY_BEHIND = re.compile(rf"(?: (?:de|of))?[ \u00a0]{_CURRENCY}", re.I)
VALUE_PATTERNS: Mapping[AnswerType, re.Pattern[str]] = {
    "percentage": re.compile(
        rf"{_NUMBER}\s?(?:%|percent|per cent|por cento|por ciento|pour cent|prozent)", re.I
    ),
    "money": re.compile(
        rf"(?:[$€£¥]|R\$|US\$|USD|EUR|BRL|GBP)\s?{_NUMBER}"
        r"(?:\s(?:million|billion|mil|milhões|millones|millions|Millionen))?"
        rf"|{_NUMBER}\s?{_CURRENCY}",
        re.I,
    ),
    # Not a part of a code, nor the number of a section ("KV3-20", "Artigo 3.º").
    "number": re.compile(rf"(?<![\w.-]){_NUMBER}(?!\w|\.?º)"),
    "date": re.compile(
        r"\b\d{4}-\d{2}-\d{2}\b|\b\d{1,2}[./]\d{1,2}[./]\d{2,4}\b"
        r"|\b\d{1,2}(?:st|nd|rd|th|º)?\.? "
        rf"(?:de |of )?(?:{_MONTHS})(?:,? (?:de |del )?\d{{4}})?\b"
        rf"|\b(?:{_MONTHS}) \d{{1,2}}(?:st|nd|rd|th)?(?:, \d{{4}})?\b"
        rf"|\b(?:{_MONTHS}) (?:de |del )?\d{{4}}\b"
        r"|\b(?:1[5-9]|20)\d{2}\b"
        r"|(?<![\w:.])(?:[01]?\d|2[0-3])(?::[0-5]\d| ?h ?[0-5]\d)(?![\w:])",
        re.I,
    ),
    "contact": re.compile(
        r"(?<![\w.+-])[\w.+-]++@[\w-]++(?:\.[\w-]++)++|https?://\S+|\+?\d[\d ()/-]{6,}\d"
    ),
    "name": re.compile(
        rf"(?<!\w)(?:(?:Dr|Prof|Mr|Mrs|Ms|Sr|Sra|Eng)\. )?{_NAME_WORD}"
        rf"(?: (?:(?:de|da|do|dos|van|von|del) )?{_NAME_WORD})*"
    ),
}
# A number that is spelled out.
_NUMERAL_WORDS = (
    r"(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|fifteen|twenty|thirty"
    r"|forty|fifty|sixty|seventy|eighty|ninety|hundred|thousand|half|once|twice"
    r"|uma?|dois|duas|três|quatro|cinco|seis|sete|oito|nove|dez|doze|quinze|vinte|trinta|sessenta"
    r"|dos|tres|siete|ocho|nueve|diez|veinte|treinta|deux|trois|quatre|cinq|sept|huit|neuf|dix|vingt"
    r"|trente|zwei|drei|vier|fünf|sechs|sieben|acht|neun|zehn|zwölf|zwanzig|dreißig)\b"
)
_NUMERAL = re.compile(rf"\d|\b(?:{_NUMERAL_WORDS}|annual(?:ly)?|daily|weekly|monthly|yearly)", re.I)
# All of "ninety-seven", and nothing of "one-way".
NUMERAL_VALUE = re.compile(
    rf"{VALUE_PATTERNS['number'].pattern}"
    rf"|(?<![\w-])(?:[^\W\d_]{{1,20}}-)?{_NUMERAL_WORDS}(?!-\w)",
    re.I,
)
# More than a clause shares words.
_CODE_WEIGHT = 10
_COUNTED = re.compile(
    r"\b(?:how many|quant[oa]s|cuánt[oa]s|combien de|wie ?viele|numbers? of|(?:an)?zahl (?:der|von)"
    r"|(?:número|quantidade|cantidad|nombre) d(?:e|[oa]s|e l[oa]s|es)) (?P<noun>\w+)",
    re.I,
)
# Units by the dimension that the question asks for, "how wide" being no weight: right behind a
# number, and anywhere.
_DIMENSIONS: Sequence[tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]] = tuple(
    (
        re.compile(rf"\b(?:{asked})\b", re.I),
        re.compile(rf"\s?(?:{units})(?!\w)", re.I),
        re.compile(rf"(?<![^\W\d_])(?:{units})(?!\w)", re.I),
    )
    for asked, units in (
        (
            "how (?:wide|tall|high|deep|thick)|width|height|depth|thickness|largura|altura|"
            "profundidade|ancho|anchura|largeur|hauteur|profondeur|wie (?:breit|tief|dick)|breite"
            "|höhe|tiefe",
            "mm|cm|m|km|(?:[cz]ent[ií]|mil[ií]|milli|[kq]u?il[oóô])?m[eèé]t(?:er|re|ro)s?|inch(?:es)?"
            "|in|ft|feet",
        ),
        (
            "how heavy|weighs?|weight|pesa|peso|pèse|poids|wie schwer|wiegt|gewicht",
            "g|kg|t|lbs?|grams?|kilo(?:gram(?:me?)?)?s?|tonn?e?s?|gramas?|quilos?|kilos?|gramm",
        ),
        (
            "temperatur(?:e|en|a|as|es)?|température|how (?:hot|warm|cold)|wie (?:heiß|warm|kalt)",
            "[°º] ?[cf]?|[℃℉]|[ck]|celsius|kelvin|degrees?|graus?|grados?|degrés?|grad",
        ),
        (
            "speeds?|velocidades?|vitesses?|geschwindigkeit(?:en)?|drehzahl",
            "knots?|nós|nudos?|nœuds?|knoten|[km]ph|rpm|[kmg]?bps"
            r"|(?:[^\W\d_]{1,20} ?)?(?:/ ?|per |an |por |par |pro )"
            "(?:h|s|min|hours?|hora|heure|stunde|minutes?|minuto|seconds?|segundo|seconde|sekunde)",
        ),
    )
)
_AMOUNT_ASKED = re.compile(
    r"\b(?:how much|de quanto|de cuánto|wie hoch|a combien|à combien)\b", re.I
)
_HOW_HIGH = re.compile(r"\b(?:how high|wie hoch)\b", re.I)
_CLAUSE_END = re.compile(r"[,;:.!?](?=\s)|\s(?:and|but|or|e|mas|ou|y|pero|et|mais|und|aber|oder)\s")


def detect_answer_type(question: str) -> AnswerType | None:
    return next(
        (
            answer_type
            for answer_type, pattern in _QUESTION_PATTERNS.items()
            if pattern.search(question)
        ),
        None,
    )


def find_value(
    answer_type: AnswerType | None, sentence: str, question: str
) -> tuple[int, int] | None:
    """Return the span of the first value of the type that the query itself does not contain.

    None if the question asks for a length, weight, temperature or speed, and the sentence has no
    unit of that dimension.
    """
    if answer_type is None:
        return None
    sentence = blank_struck(sentence)
    # Fees are high too, and people are counted in a weight room.
    if answer_type == "number" and not (_COUNTED.search(question) or _HOW_HIGH.search(question)):
        asked_units = next(
            (units for asked, _, units in _DIMENSIONS if asked.search(question)), None
        )
        if asked_units is not None and not asked_units.search(sentence):
            return None
    return next(
        (
            (start, end)
            for start, end in _find_spans(answer_type, sentence)
            if sentence[start:end] not in question
        ),
        None,
    )


def _find_spans(answer_type: AnswerType, sentence: str) -> list[tuple[int, int]]:
    """Return the values of the type in order, amounts in words included."""
    spans = [match.span() for match in VALUE_PATTERNS[answer_type].finditer(sentence)]
    if answer_type == "money":
        spans += find_spelled_amounts(sentence)
    return sorted(spans)


def find_spelled_amounts(text: str) -> list[tuple[int, int]]:
    """Return the places of amounts of money in words, with their currencies."""
    return [
        (number.start, currency.end())
        for number in find_spelled_numbers(text)
        if (currency := _CURRENCY_BEHIND.match(text, number.end))
    ]


def find_numbers(text: str) -> list[tuple[int, int]]:
    """Return the places of numbers in order, each in digits or in words."""
    spelled = [(number.start, number.end) for number in find_spelled_numbers(text)]
    return sorted(
        spelled
        + [
            match.span()
            for match in NUMERAL_VALUE.finditer(text)
            if not any(start < match.end() and match.start() < end for start, end in spelled)
        ]
    )


def holds_numeral(text: str) -> bool:
    """Tell whether the text has a number in digits or in words."""
    return bool(_NUMERAL.search(blank_struck(text)))


def holds_name(text: str, question: str) -> bool:
    """Tell whether the text has a capitalized word, but the first, that the question lacks."""
    return find_value("name", text.partition(" ")[2], question) is not None


def choose_value(
    answer_type: AnswerType | None, sentence: str, question: str
) -> tuple[int, int] | None:
    """Return the span of the value that suits the question best, or None if none stands out.

    Of several values, it is the number before the noun that is counted, or the value whose clause
    holds a code of the question, else the one whose clause shares most words with it; the words
    right behind a number weigh double.
    """
    if answer_type is None:
        return None
    sentence = blank_struck(sentence)
    found = (
        find_numbers(sentence) if answer_type == "number" else _find_spans(answer_type, sentence)
    )
    spans = [
        (start, end)
        for start, end in found
        if sentence[start:end] not in question
        # The first word of a sentence is always capitalized.
        and (
            answer_type != "name"
            or (
                re.search(r"[^.!?:\s]\s+$", sentence[:start])
                and strip_accents(sentence[start:end].lower()) not in MONTHS
            )
        )
    ]
    question_keys = extract_stems(question)
    codes = find_question_terms(question, None).codes
    spans = _prefer_unit(spans, sentence, question) if answer_type == "number" else spans
    counted = _COUNTED.search(question)
    counted_keys = extract_word_keys(counted["noun"]) if counted else set()

    def rate(span: tuple[int, int]) -> int:
        start, end = _find_clause(sentence, span)
        clause_terms = index_text_terms([sentence[start:end]])
        # Not beyond the clause: in "from May and ends in June", "ends" says nothing of May.
        following_words = " ".join(sentence[span[1] : end].split(maxsplit=3)[:3])
        counts_noun = bool(counted_keys & extract_word_keys(following_words))
        return (
            _CODE_WEIGHT * sum(clause_terms.holds_code(code) for code in codes)
            + _CODE_WEIGHT * counts_noun
            + len(question_keys & extract_word_keys(sentence[start:end]))
            + 2 * len(question_keys & extract_word_keys(following_words))
        )

    ratings = [rate(span) for span in spans]
    best = max(ratings, default=0)
    if not spans or (len(spans) > 1 and ratings.count(best) > 1):
        return None
    return spans[ratings.index(best)]


def _prefer_unit(
    spans: list[tuple[int, int]], sentence: str, question: str
) -> list[tuple[int, int]]:
    """Return the numbers that have a unit of the dimension that the question asks for, if any.

    To a question about an amount, the numbers in amounts of money suit as well.
    """
    units = next((units for asked, units, _ in _DIMENSIONS if asked.search(question)), None)
    amounts = _find_spans("money", sentence) if _AMOUNT_ASKED.search(question) else []
    fitting = [
        (start, end)
        for start, end in spans
        if (units is not None and units.match(sentence, end))
        or any(amount_start <= start < amount_end for amount_start, amount_end in amounts)
    ]
    return fitting or spans


def _find_clause(sentence: str, span: tuple[int, int]) -> tuple[int, int]:
    ends = list(_CLAUSE_END.finditer(sentence))
    start = max((end.end() for end in ends if end.end() <= span[0]), default=0)
    return start, min(
        (end.start() for end in ends if end.start() >= span[1]), default=len(sentence)
    )


def choose_cell(
    names: Sequence[str], values: Sequence[str], question: str, answer_type: AnswerType | None
) -> int | None:
    """Return the index of the table cell that the question asks for.

    It is the cell whose column name shares most words with the question, among cells that hold
    anything the question does not say; without such a name, the only cell with a value of the
    type. None if no cell stands out.
    """
    question_keys = extract_stems(question)
    open_cells = [
        index
        for index, value in enumerate(values)
        if value
        and _count_held(keys := extract_word_keys(value), question_keys) < max(1, len(keys))
    ]
    shares = {
        index: _count_held(extract_word_keys(names[index]), question_keys)
        for index in open_cells
        if index < len(names)
    }
    most_shared = max(shares.values(), default=0)
    named_cells = [index for index, share in shares.items() if share == most_shared > 0]
    typed_cells = [
        index
        for index in (named_cells or open_cells)
        if answer_type is not None and find_value(answer_type, values[index], question)
    ]
    chosen_cells = typed_cells if len(typed_cells) == 1 else named_cells
    return chosen_cells[0] if len(chosen_cells) == 1 else None


def _count_held(keys: Collection[str], question_keys: Collection[str]) -> int:
    """Count the keys that the question has, or a form of."""
    return sum(holds_form(question_keys, key) for key in keys)


def highlight_value(sentence: str, value_span: tuple[int, int] | None) -> str:
    """Return the sentence with the value in bold (Markdown)."""
    if value_span is None:
        return sentence
    start, end = value_span
    return f"{sentence[:start]}**{sentence[start:end]}**{sentence[end:]}"
