"""Read quantities from text: numbers with their units, amounts of money, percentages and dates.

Two quantities are comparable when kind and unit are equal; `value` is normalized, so that
"1,500.0", "1.500" and "1500", or "31 March 2027" and "2027-03-31", are equal.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from typing import Literal

from retrieval.question.answer_values import VALUE_PATTERNS, find_numbers, find_spelled_amounts
from retrieval.question.numerals import find_spelled_numbers
from retrieval.question.words import (
    MONTHS,
    NUMERALS,
    blank_struck,
    is_function_word,
    stem_word,
    strip_accents,
)

QuantityKind = Literal["date", "percentage", "money", "number"]


@dataclass(frozen=True, slots=True)
class Quantity:
    """A quantity at `[start, end)` of its text; with a unit behind it, up to `unit_end`.

    A bare year is a date whose value is the year.
    """

    kind: QuantityKind
    unit: str
    value: str
    start: int
    end: int
    unit_end: int | None = None
    shown_value: str = ""
    """The value as a table cell rounds it, where `value` is what the cell stores."""

    def is_equal(self, other: Quantity) -> bool:
        """Tell whether both state one value, stored or as shown."""
        return not self._list_values().isdisjoint(other._list_values())

    def _list_values(self) -> set[str]:
        return {self.value, self.shown_value or self.value}

    @property
    def known_unit(self) -> str:
        """The unit by its English name; empty for a noun that is counted."""
        return self.unit if self.kind in ("money", "percentage") else UNIT_NAMES.get(self.unit, "")

    def shift(self, offset: int) -> Quantity:
        """Return the quantity at its place in a text that has `offset` more characters before."""
        unit_end = None if self.unit_end is None else self.unit_end + offset
        return replace(self, start=self.start + offset, end=self.end + offset, unit_end=unit_end)

    @property
    def place(self) -> tuple[int, int]:
        return self.start, self.end

    @property
    def place_with_unit(self) -> tuple[int, int]:
        return self.start, self.unit_end or self.end

    @property
    def is_year(self) -> bool:
        return self.kind == "date" and len(self.value) == 4


_CURRENCIES: Mapping[str, str] = {
    "r$": "BRL", "brl": "BRL", "reais": "BRL", "us$": "USD", "usd": "USD", "$": "USD",
    "dollar": "USD", "dolare": "USD", "€": "EUR", "eur": "EUR", "euro": "EUR", "£": "GBP",
    "gbp": "GBP", "pound": "GBP", "¥": "JPY", "chf": "CHF",
}  # fmt: skip
_MULTIPLIERS: Mapping[str, int] = {
    "million": 10**6, "milhoe": 10**6, "millone": 10**6, "millionen": 10**6, "mil": 1000,
    "billion": 10**9,
}  # fmt: skip
# Units that have several names, in the forms of `stem_word`.
UNIT_NAMES: Mapping[str, str] = {
    name: unit
    for unit, names in {
        "second": "s sec second segund sekund", "minute": "min minut",
        "hour": "h hour hora heur stunde",
        "day": "day dia jour tag tage", "week": "week seman semain wochen woche",
        "month": "month mes mese moi mois monat", "year": "year ano anne jahr",
        "meter": "m metr", "kilometer": "km kilome quilom", "centimeter": "cm centim",
        "gram": "g gram", "kilogram": "kg kilogr quilog kilo", "tonne": "t ton tonn tonela",
        "liter": "l litr", "kilowatt": "kw kilowa", "volt": "volt",
        "person": "person people peopl pesso", "knot": "knot nos", "degree": "° º °c degre grau",
    }.items()
    for name in names.split()
}  # fmt: skip
# Symbols of units that are also function words of some language.
_SYMBOLS = frozenset({"m", "s", "g", "h", "l", "t"})
_WORD = re.compile(r"[^\W\d_]+")
_DIGITS = re.compile(r"\d+")
_AMOUNT = re.compile(r"\d+(?:[.,\u00a0 ]\d+)*")
_UNIT = re.compile(r"[\s\u00a0-]?(?P<unit>[^\W\d_]+|[°º]\w?|[²³])")
_LETTERS_BEFORE_DIGITS = re.compile(r"\D*?[^\W\d_]")
_ISO_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_GROUPED = re.compile(r"[1-9]\d{0,2}(?:([.,\u00a0 ])\d{3})(?:\1\d{3})*")


def find_quantities(text: str) -> list[Quantity]:
    """Return the quantities in order of the text, without overlaps."""
    found: list[Quantity] = []
    claimed = bytearray(len(text))
    for quantity in _scan(blank_struck(text)):
        # A date holds numbers, and an amount of money is a number too.
        if not any(claimed[quantity.start : quantity.end]):
            found.append(quantity)
            claimed[quantity.start : quantity.end] = b"x" * (quantity.end - quantity.start)
    return sorted(found, key=lambda quantity: quantity.start)


def apply_raw_values(
    text: str, quantities: Sequence[Quantity], raw_places: Sequence[tuple[int, int, str]]
) -> list[Quantity]:
    """Return the quantities with the stored values of the table cells at these places.

    A cell holds one value, whose scale and form the stored one tells: `12.5M` may be 12487300, and
    `03/04/2025` the 4th of March.
    """
    applied = list(quantities)
    for start, end, raw_value in raw_places:
        inner = [item for item in applied if start <= item.start and item.end <= end]
        if inner and (stored := _read_cell(text[start:end], inner, raw_value)):
            applied[applied.index(inner[0])] = replace(stored, start=start, end=end)
            applied = [item for item in applied if item not in inner]
    return applied


def _read_cell(cell: str, inner: Sequence[Quantity], raw_value: str) -> Quantity | None:
    shown = inner[0]
    if shown.kind == "date":
        day = _ISO_DAY.match(raw_value)
        # A cell that shows a month or year alone stores its first day.
        return replace(shown, value=day[0]) if day and shown.value.count("-") == 2 else None
    # The digits of a code count nothing.
    if shown.kind == "number" and _LETTERS_BEFORE_DIGITS.match(cell):
        return None
    try:
        # Quantities have no sign.
        stored, rounded = abs(Decimal(raw_value)), Decimal(normalize_number(cell))
    except InvalidOperation:  # a date in numbers
        return None
    if shown.kind == "percentage":
        stored *= 100
    # What a format divides by: 1000 for each comma at its end.
    factor = round((stored / rounded).log10() / 3) if stored and rounded else 0
    return replace(
        shown,
        value=_format(stored),
        shown_value=_format(rounded * Decimal(1000) ** factor) if len(inner) == 1 else "",
        # The letter of a scaled number is no unit.
        unit="" if factor and shown.kind == "number" else shown.unit,
        unit_end=None,
    )


def blank_quantities(text: str, quantities: Sequence[Quantity]) -> str:
    """Return the text with spaces in place of the quantities."""
    for quantity in quantities:
        text = text[: quantity.start] + " " * (quantity.end - quantity.start) + text[quantity.end :]
    return text


def _scan(text: str) -> Iterator[Quantity]:
    for match in VALUE_PATTERNS["date"].finditer(text):
        yield Quantity("date", "", _normalize_date(match.group()), *match.span())
    for match in VALUE_PATTERNS["percentage"].finditer(text):
        yield Quantity("percentage", "%", normalize_number(match.group()), *match.span())
    for match in VALUE_PATTERNS["money"].finditer(text):
        yield Quantity("money", _find_currency(match.group()), *_read_amount(match))
    for start, end in find_spelled_amounts(text):
        yield Quantity(
            "money", _find_currency(text[start:end]), normalize_number(text[start:end]), start, end
        )
    for start, end in find_numbers(text):
        # "One" and "uma" may be articles, and "half" and "weekly" count nothing by themselves.
        value = normalize_number(text[start:end])
        if not text[start].isdigit() and (not value.isdigit() or value == "1"):
            continue
        unit = _UNIT.match(text, end)
        word = unit["unit"] if unit else ""
        is_unit = word in _SYMBOLS or not is_function_word(word)
        name = stem_word(word) if is_unit else ""
        unit_end = unit.end() if unit and name else None
        yield Quantity("number", name, value, start, end, unit_end)


def _find_currency(amount: str) -> str:
    symbols = re.findall(r"R\$|US\$|[$€£¥]|[^\W\d_]+", amount)
    keys = (strip_accents(symbol.lower()) for symbol in symbols)
    return next(
        (_CURRENCIES[name] for key in keys for name in (key, key.removesuffix("s"))
         if name in _CURRENCIES),
        "",
    )  # fmt: skip


def _read_amount(match: re.Match[str]) -> tuple[str, int, int]:
    words = [strip_accents(word.lower()).removesuffix("s") for word in _WORD.findall(match.group())]
    factor = next((_MULTIPLIERS[word] for word in words if word in _MULTIPLIERS), 1)
    return _format(Decimal(normalize_number(match.group())) * factor), match.start(), match.end()


def normalize_number(text: str) -> str:
    """Return the number in the text, in digits without separators or zeros at the end.

    A single separator before three digits separates thousands. A numeral that is not known is
    returned as it is.
    """
    amount = _AMOUNT.search(text)
    if amount is None:
        if spelled := find_spelled_numbers(text):
            return str(spelled[0].value)
        words = [strip_accents(word.lower()) for word in _WORD.findall(text)]
        values = [NUMERALS[word] for word in words if word in NUMERALS]
        return str(sum(values)) if values else text.lower()
    number = amount.group()
    if _GROUPED.fullmatch(number):
        return _DIGITS_ONLY.sub("", number)
    separators = [char for char in number if not char.isdigit()]
    if separators and number.count(separators[-1]) == 1:
        whole, _, fraction = number.rpartition(separators[-1])
        return _format(Decimal(f"{_DIGITS_ONLY.sub('', whole)}.{fraction}"))
    return _format(Decimal(_DIGITS_ONLY.sub("", number)))


_DIGITS_ONLY = re.compile(r"\D")


def _format(number: Decimal) -> str:
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _normalize_date(text: str) -> str:
    """Return the date as YYYY-MM-DD, as far as it is given; a time as HH:MM.

    Of 05/04/2026 the day comes first, unless the second number cannot be a month.
    """
    words = [strip_accents(word.lower()) for word in _WORD.findall(text)]
    month = next((MONTHS[word] for word in words if word in MONTHS), None)
    numbers = list(map(int, _DIGITS.findall(text)))
    year = next((f"{number:04}" for number in numbers if number > 31), "")
    if month is not None:
        day = next((f"-{number:02}" for number in numbers if number <= 31), "")
        return f"{year}-{month:02}{day}"
    if re.fullmatch(r"\d{4}-\d\d-\d\d", text) or len(numbers) == 1:
        return text if len(numbers) == 3 else f"{numbers[0]}"
    if len(numbers) == 3:
        first, second = (numbers[1], numbers[0]) if numbers[1] > 12 else (numbers[0], numbers[1])
        return f"{numbers[2]:04}-{second:02}-{first:02}"
    return ":".join(f"{number:02}" for number in numbers)
