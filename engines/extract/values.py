"""Amounts, dates and identifiers by regular expressions, with a normalized key for equal values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from engines.extract.word_lists import MONTHS

_MONTH = "|".join(sorted(MONTHS, key=len, reverse=True))
_NUMBER = r"\d{1,3}(?:[.,\s]\d{3}){1,10}(?:[.,]\d{1,2})?|\d+(?:[.,]\d+)?"
_SCALE = r"million|milhões|milhão|billion|bilhões|bilhão|thousand|trillion|trilhões|mil|bn|m|k"
_CURRENCY_BY_SIGN = {
    sign: code
    for code, signs in {
        "EUR": "€ eur euro euros",
        "USD": "$ us$ usd dollar dollars dólar dólares",
        "GBP": "£ gbp pound pounds libras",
        "BRL": "r$ brl real reais",
        "CHF": "chf francs",
    }.items()
    for sign in signs.split()
}
_SCALES = {
    "million": 6,
    "milhões": 6,
    "milhão": 6,
    "m": 6,
    "billion": 9,
    "bilhões": 9,
    "bilhão": 9,
    "bn": 9,
    "thousand": 3,
    "mil": 3,
    "k": 3,
    "trillion": 12,
    "trilhões": 12,
}

# From specific to general: at each position the first alternative that matches wins.
_PATTERNS = re.compile(
    rf"""(?P<email>(?<![\w.+-])[\w.+-]++@[\w-]++(?:\.[\w-]++)++)
    |(?P<code>
        \b\d{{2}}\.\d{{3}}\.\d{{3}}/\d{{4}}-\d{{2}}\b
        |\b\d{{3}}\.\d{{3}}\.\d{{3}}-\d{{2}}\b
        |\b\d{{7}}-\d{{2}}\.\d{{4}}\.\d\.\d{{2}}\.\d{{4}}\b
        |\b(?=[A-Z0-9])(?=[A-Z./-]{{0,60}}+\d)(?=[0-9./-]{{0,60}}+[A-Z])
            [A-Z0-9]+(?:[-/.][A-Z0-9]+)+\b
        |\b[A-Z]{{2}}\d{{2}}(?:\s?[A-Z0-9]{{4}}){{3,7}}(?:\s?[A-Z0-9]{{1,3}})?\b
        |\b[A-Z]{{2,5}}\d{{3,}}\b)
    |(?P<iso>\b\d{{4}}-\d{{2}}-\d{{2}}\b)
    |(?P<numeric>\b\d{{1,2}}[/.]\d{{1,2}}[/.](?:\d{{4}}|\d{{2}})\b)
    |(?P<dmy>\b\d{{1,2}}(?:st|nd|rd|th|º|o)?\s+(?:de\s+|of\s+)?(?:{_MONTH})\b\.?,?
        (?:\s+(?:de\s+)?\d{{4}}\b)?)
    |(?P<mdy>\b(?:{_MONTH})\b\.?\s+\d{{1,2}}(?:st|nd|rd|th)?\b(?:,?\s+\d{{4}}\b)?)
    |(?P<my>\b(?:{_MONTH})(?:/|\s+(?:de\s+)?)\d{{4}}\b)
    |(?P<before>(?:R\$|US\$|[€$£]|\b(?:EUR|USD|GBP|BRL|CHF)\b)
        \s?(?:{_NUMBER})(?:\s?(?:{_SCALE})\b)?)
    |(?P<after>\b(?:{_NUMBER})(?:\s(?:{_SCALE}))?(?:\sde)?\s?(?:€|£
        |(?:EUR|USD|GBP|BRL|CHF|euros?|dollars?|dólar(?:es)?|reais|pounds?|libras|francs)\b))
    |(?P<year>(?<=\b(?i:in|em|de|of)\s)(?:1[6-9]|20)\d\d\b)
    |(?P<number>
        (?:(?<=n[.º°]\s)|(?<=nº\s)|(?<=n\.º\s)
        |(?<=(?i:number)\s)|(?<=(?i:numero)\s)|(?<=(?i:número)\s))[\w./-]*\d[\w/-]*)""",
    re.VERBOSE | re.IGNORECASE,
)
_ISO_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_DECIMAL = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
_TYPE_BY_GROUP = {
    "email": "IDENTIFIER",
    "code": "IDENTIFIER",
    "number": "IDENTIFIER",
    "before": "MONEY",
    "after": "MONEY",
}


@dataclass(frozen=True, slots=True)
class EntitySpan:
    """A name or value at `[start, end)` of a text; all spellings of the same one share a `key`."""

    start: int
    end: int
    type: str
    key: str


def find_values(text: str) -> Iterator[EntitySpan]:
    """Yield the values in order, without overlaps."""
    # Every value has a digit or an @, which most sentences have not.
    if not any(map(str.isdigit, text)) and "@" not in text:
        return
    for match in _PATTERNS.finditer(text):
        kind, raw = str(match.lastgroup), match[0].rstrip(".,")
        # The expression ignores case because of the months, but codes have no lowercase letters.
        if kind == "code" and (
            raw != raw.upper() or re.fullmatch(r"[A-Z]+[-/]\d|\d+[A-Z]{1,2}", raw)
        ):
            continue
        yield EntitySpan(
            match.start(),
            match.start() + len(raw),
            _TYPE_BY_GROUP.get(kind, "DATE"),
            _normalize_value(kind, raw),
        )


def apply_raw_value(span: EntitySpan, raw_value: str) -> EntitySpan:
    """Return the span with the key of its cell's stored value, if that is of its type.

    "$1.3" may store 1300000, and "03/04/2025" the 4th of March.
    """
    if span.type == "DATE" and (day := _ISO_DAY.match(raw_value)):
        return replace(span, key=day[0])
    if span.type == "MONEY" and _DECIMAL.fullmatch(raw_value):
        currency = span.key.rpartition(" ")[0]
        return replace(span, key=f"{currency} {float(raw_value):.2f}".strip())
    return span


def _normalize_value(kind: str, raw: str) -> str:
    match kind:
        case "before" | "after":
            return _normalize_amount(raw)
        case "dmy" | "mdy" | "my":
            words = re.findall(r"[a-zç]+|\d+", raw.lower())
            named_month = next((MONTHS[word] for word in words if word in MONTHS), 0)
            numbers = [word for word in words if word.isdigit()]
            written_year = next((word for word in numbers if len(word) == 4), "")
            written_day = next((f"{int(word):02}" for word in numbers if len(word) <= 2), "")
            return "-".join(filter(None, (written_year, f"{named_month:02}", written_day)))
        case "numeric":
            # Day first, unless the second number cannot be a month.
            day, month, year = map(int, re.split(r"[/.]", raw))
            if month > 12:
                day, month = month, day
            return f"{year + 2000 if year < 100 else year:04}-{month:02}-{day:02}"
        case _:
            return " ".join(raw.lower().split())


def _normalize_amount(raw: str) -> str:
    """Normalize `€ 18.740,50` to `EUR 18740.50`.

    A single separator before three digits separates thousands.
    """
    text = raw.lower()
    # Longest first: `R$` and `US$` contain `$`.
    currency = next(
        (
            code
            for sign, code in sorted(_CURRENCY_BY_SIGN.items(), key=lambda item: -len(item[0]))
            if sign in text
        ),
        "",
    )
    digits = re.search(_NUMBER, text)
    scale = next((_SCALES[word] for word in re.findall(r"[a-zõã]+", text) if word in _SCALES), 0)
    return f"{currency} {_parse_number(digits[0] if digits else '0') * 10**scale:.2f}".strip()


def _parse_number(raw: str) -> float:
    compact = re.sub(r"\s", "", raw)
    integer_part, decimal_point, decimals = compact, "", ""
    # Decimals are one or two digits at the end, or four and more after the only separator.
    if (decimal_match := re.search(r"[.,](\d{1,2})$", compact)) or (
        decimal_match := re.search(r"^\d+[.,](\d{4,})$", compact)
    ):
        integer_part = compact[: decimal_match.start()]
        decimal_point = "."
        decimals = decimal_match[1]
    return float(re.sub(r"[.,]", "", integer_part) + decimal_point + decimals)
