"""Detect the expected answer type of a query, and find its values in sentences."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

AnswerType = Literal["money", "percentage", "number", "date", "contact"]

_QUESTION_PATTERNS: Mapping[AnswerType, re.Pattern[str]] = {
    "percentage": re.compile(
        r"percent|por cento|porcentag|percentual|porcentaje|pourcent|prozent|what share|interest rate|taxa de|tasa de|\btaux\b",
        re.I,
    ),
    "money": re.compile(
        r"how much\b(?:(?!how much\b).)*?\b(?:cost|pay|paid|price|fee|worth|charge|rent|owe)|\b(?:price|cost|fee|rent|salary|budget|amount)s? of\b|what (?:is|was|are) the (?:(?!what (?:is|was|are) the ).)*?\b(?:price|cost|fee|rent|salary|budget|amount)"
        r"|quanto (?:custa|custou|paga|pagou|é pago|vale)|qual (?:é |foi )?o (?:valor|preço|custo|montante)|cuánto (?:cuesta|costó|vale|paga)|combien coûte|quel (?:est )?(?:le )?(?:prix|coût|montant)"
        r"|was kostet|wie ?viel kostet",
        re.I,
    ),
    "number": re.compile(
        r"how (?:many|long|far|old|big|large|high|much)|quant[oa]s?\b|cuánt[oa]s?\b|combien|wie ?(?:viele?|lange|hoch|groß)|what number",
        re.I,
    ),
    "date": re.compile(
        r"\bwhen\b|what (?:date|day|year|time)|which (?:date|day|year)|\bquando\b|(?:qual|que|em que) (?:a )?(?:data|dia|ano)|cuándo|qué (?:fecha|día|año)|\bquand\b|quelle date|\bwann\b|welche[ms]? (?:datum|tag|jahr)",
        re.I,
    ),
    "contact": re.compile(
        r"e-?mail|phone|telephone|telefone|teléfono|téléphone|telefon|web ?site", re.I
    ),
}
_MONTHS = (
    "january|february|march|april|may|june|july|august|september|october|november|december|janeiro|fevereiro|março|abril|maio|junho|julho|agosto|setembro|outubro|"
    "novembro|dezembro|enero|febrero|marzo|mayo|junio|julio|septiembre|octubre|noviembre|diciembre|janvier|février|mars|avril|mai|juin|juillet|août|septembre|"
    "octobre|novembre|décembre|januar|februar|märz|juni|juli|oktober|dezember"
)
_NUMBER = r"(?<!\d)\d++(?:[.,\u00a0 ]\d{3}){0,10}(?:[.,]\d++)?"
_VALUE_PATTERNS: Mapping[AnswerType, re.Pattern[str]] = {
    "percentage": re.compile(
        rf"{_NUMBER}\s?(?:%|percent|per cent|por cento|por ciento|pour cent|prozent)", re.I
    ),
    "money": re.compile(
        rf"(?:[$€£¥]|R\$|US\$|USD|EUR|BRL|GBP)\s?{_NUMBER}(?:\s(?:million|billion|mil|milhões|millones|millions|Millionen))?|{_NUMBER}\s?(?:€|£|euros?|dollars?|reais|dólares|pounds|EUR|USD|BRL|CHF)\b",
        re.I,
    ),
    "number": re.compile(rf"(?<![\w.]){_NUMBER}(?![\w])"),
    "date": re.compile(
        rf"\b\d{{4}}-\d{{2}}-\d{{2}}\b|\b\d{{1,2}}[./]\d{{1,2}}[./]\d{{2,4}}\b|\b\d{{1,2}}(?:st|nd|rd|th|º)?\.? (?:de |of )?(?:{_MONTHS})(?:,? (?:de |del )?\d{{4}})?\b"
        rf"|\b(?:{_MONTHS}) \d{{1,2}}(?:st|nd|rd|th)?(?:, \d{{4}})?\b|\b(?:{_MONTHS}) (?:de |del )?\d{{4}}\b|\b(?:1[5-9]|20)\d{{2}}\b",
        re.I,
    ),
    "contact": re.compile(
        r"(?<![\w.+-])[\w.+-]++@[\w-]++(?:\.[\w-]++)++|https?://\S+|\+?\d[\d ()/-]{6,}\d"
    ),
}


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
    """Return the span of the first value of the type that the query itself does not contain."""
    if answer_type is None:
        return None
    return next(
        (
            match.span()
            for match in _VALUE_PATTERNS[answer_type].finditer(sentence)
            if match.group() not in question
        ),
        None,
    )


def highlight_value(sentence: str, value_span: tuple[int, int] | None) -> str:
    """Return the sentence with the value in bold (Markdown)."""
    return (
        sentence
        if value_span is None
        else f"{sentence[: value_span[0]]}**{sentence[value_span[0] : value_span[1]]}**{sentence[value_span[1] :]}"
    )
