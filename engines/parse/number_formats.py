"""Number format codes of spreadsheets: 12500000 under `0.0,,"M"` is shown as 12.5M.

Source: ECMA-376 part 1, 18.8.30 and 18.8.31 (number formats). Compared with LibreOffice in
`tests/unit/engines_parse/number_formats.tsv`.
"""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from fractions import Fraction
from functools import lru_cache
from operator import eq, ge, gt, le, lt, ne

from engines.parsed_blocks import FormattedCell

BUILT_IN_FORMATS = {
    1: "0",
    2: "0.00",
    3: "#,##0",
    4: "#,##0.00",
    9: "0%",
    10: "0.00%",
    11: "0.00E+00",
    12: "# ?/?",
    13: "# ??/??",
    # The program shows 14 and 22 as its user's country writes dates, which the file does not say.
    14: "yyyy-mm-dd",
    15: "d-mmm-yy",
    16: "d-mmm",
    17: "mmm-yy",
    18: "h:mm AM/PM",
    19: "h:mm:ss AM/PM",
    20: "h:mm",
    21: "h:mm:ss",
    22: "yyyy-mm-dd h:mm",
    37: "#,##0_);(#,##0)",
    38: "#,##0_);[Red](#,##0)",
    39: "#,##0.00_);(#,##0.00)",
    40: "#,##0.00_);[Red](#,##0.00)",
    45: "mm:ss",
    46: "[h]:mm:ss",
    47: "mm:ss.0",
    48: "##0.0E+0",
    49: "@",
}
_TOKEN = re.compile(
    r'"(?P<quoted>[^"]*)"?'
    r"|\\(?P<escaped>.)"
    r"|_(?P<space>.)"
    r"|\*(?P<fill>.)"
    r"|\[(?P<elapsed>h+|m+|s+)\]"
    r"|\[(?P<condition>(?:<=|>=|<>|<|>|=)[-+]?[0-9.]+(?:E[-+]?[0-9]+)?)\]"
    r"|\[\$(?P<currency>[^\[\]\-]*+)(?:-(?P<locale>[0-9A-F]*))?[^\[\]]*+\]"
    r"|\[(?P<color>[^\[\]]*+)\]"
    r"|(?P<general>General|Standard)"
    r"|(?P<noon>AM/PM|A/P)"
    r"|(?P<second_fraction>(?<=s)\.0+|(?<=s\])\.0+)"
    r"|(?P<exponent>E[+-])"
    r"|(?P<date>y+|m+|d+|h+|s+|e+)"
    r"|(?P<digit>[0#?])"
    r"|(?P<mark>[.,%/@])"
    r"|(?P<literal>.)",
    re.I | re.S,
)
_MAX_CODE_LENGTH = 1000
_MAX_DECIMALS = 30
_DAY_S = 86_400
_MAX_SERIAL = 2_958_466
"""The day after 31 December 9999, the last day that spreadsheets show."""
_EPOCH, _EPOCH_1904 = datetime.datetime(1899, 12, 30), datetime.datetime(1904, 1, 1)
_ENGLISH = 0x09
# Months, then weekdays from Monday, by the primary language of a Windows locale number.
_NAMES = {
    _ENGLISH: "January February March April May June July August September October November "
    "December Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
    0x16: "janeiro fevereiro março abril maio junho julho agosto setembro outubro novembro "
    "dezembro segunda-feira terça-feira quarta-feira quinta-feira sexta-feira sábado domingo",
    0x0A: "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre "
    "diciembre lunes martes miércoles jueves viernes sábado domingo",
    0x07: "Januar Februar März April Mai Juni Juli August September Oktober November Dezember "
    "Montag Dienstag Mittwoch Donnerstag Freitag Samstag Sonntag",
    0x0C: "janvier février mars avril mai juin juillet août septembre octobre novembre décembre "
    "lundi mardi mercredi jeudi vendredi samedi dimanche",
    0x10: "gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre "
    "dicembre lunedì martedì mercoledì giovedì venerdì sabato domenica",
}
_COMPARISONS = {"<": lt, ">": gt, "=": eq, "<=": le, ">=": ge, "<>": ne}
Tokens = list[tuple[str, str]]


@dataclass(slots=True)
class _Section:
    """One of the up to four parts of a format code that `;` separates."""

    tokens: Tokens
    condition: tuple[str, Decimal] | None = None
    language: int = _ENGLISH

    def has(self, *kinds: str) -> bool:
        return any(kind in kinds for kind, _ in self.tokens)

    def matches(self, value: Decimal) -> bool:
        assert self.condition is not None
        sign, limit = self.condition
        return bool(_COMPARISONS[sign](value, limit))

    def excludes_positive(self) -> bool:
        """Return whether the section is for negative numbers, so that it says how they look."""
        return (
            self.condition is not None
            and self.condition[0] in ("<", "<=")
            and self.condition[1] <= 0
        )


def format_cell_number(value: float, code: str, *, is_1904: bool = False) -> str:
    """Format a number as it is shown, with its stored value where the text says it otherwise."""
    if not code:
        return format_general(value)
    text = format_number(value, code, is_1904=is_1904)
    return keep_raw_value(text, _format_raw_value(value, code, is_1904))


def keep_raw_value(text: str, raw_value: str) -> str:
    """Return the text with its stored value, unless it is that number in plain digits."""
    if not raw_value or text.strip() == raw_value:
        return text
    try:
        is_same = Decimal(text.replace(",", "")) == Decimal(raw_value)
    except InvalidOperation:
        is_same = False
    return text if is_same else FormattedCell(text, raw_value)


def _format_raw_value(value: float, code: str, is_1904: bool) -> str:
    """Return a number in decimal digits, and a date or time in ISO 8601; '' for a duration."""
    number = Decimal(repr(value))
    if not number.is_finite():
        return ""
    section, _ = _choose_section(_parse_code(code[:_MAX_CODE_LENGTH]), number)
    if section is None or not section.has("date", "elapsed", "noon"):
        # The digits that a cell holds exactly.
        return f"{value:.15g}"
    if section.has("elapsed") or not 0 <= number < _MAX_SERIAL:
        return ""
    seconds = int((number * _DAY_S).to_integral_value(ROUND_HALF_UP))
    moment = _to_moment(seconds, is_1904)
    if seconds < _DAY_S:
        return moment.time().isoformat()
    return moment.date().isoformat() if seconds % _DAY_S == 0 else moment.isoformat()


def format_number(value: float, code: str, *, is_1904: bool = False) -> str:
    """Format a number as a spreadsheet program shows it under a format code."""
    sections = _parse_code(code[:_MAX_CODE_LENGTH])
    number = Decimal(repr(value))
    if not number.is_finite():
        return str(value)
    section, is_sign_shown = _choose_section(sections, number)
    if section is None:
        return format_general(value)
    if section.has("date", "elapsed", "noon"):
        return _format_date(number, section, is_1904) or format_general(value)
    magnitude = abs(number)
    if section.has("general", "at"):
        text = _replace(section.tokens, format_general(float(magnitude)))
        return f"-{text}" if number < 0 and is_sign_shown else text
    try:
        text, is_zero = _format_digits(magnitude, section.tokens)
    except (InvalidOperation, OverflowError):  # more digits than a decimal context holds
        return format_general(value)
    return f"-{text}" if number < 0 and is_sign_shown and not is_zero else text


def format_text(text: str, code: str) -> str:
    """Format text as a spreadsheet program shows it, which matters for codes such as `"KX-"@`."""
    sections = _parse_code(code[:_MAX_CODE_LENGTH])
    section = sections[3] if len(sections) > 3 else sections[-1]
    is_for_text = len(sections) > 3 or section.has("at")
    return _replace(section.tokens, text) if is_for_text else text


def format_general(value: float) -> str:
    """Format a number without a format: 11 digits, but every digit of an integer.

    A spreadsheet program shortens long integers to 1.23E+15, although they often are codes whose
    every digit counts. Cells hold 15 digits exactly.
    """
    if abs(value) < 1e16 and value == int(value):
        return str(int(value))
    return f"{value:.11g}".upper()


@lru_cache(maxsize=1024)
def _parse_code(code: str) -> list[_Section]:
    sections = [_Section([])]
    for match in _TOKEN.finditer(code):
        kind, text = match.lastgroup or "", match[0]
        section = sections[-1]
        match kind:
            case "literal" if text == ";":
                sections.append(_Section([]))
            case "quoted" | "escaped":
                section.tokens.append(("literal", match[kind]))
            case "space":
                section.tokens.append(("literal", " "))
            case "condition":
                operator = re.match(r"[<>=]+", match[kind])
                assert operator is not None
                try:
                    limit = Decimal(match[kind][operator.end() :])
                except InvalidOperation:
                    continue
                section.condition = (operator[0], limit)
            case "currency" | "locale":
                section.tokens.append(("literal", match["currency"]))
                section.language = int(match["locale"] or "9", 16) & 0x3FF
            case "fill" | "color":
                pass
            case "mark":
                section.tokens.append(("at" if text == "@" else text, text))
            case _:
                section.tokens.append((kind, text.lower() if kind == "date" else match[kind]))
    return sections


def _choose_section(sections: list[_Section], number: Decimal) -> tuple[_Section | None, bool]:
    """Return the section for a number, and whether a minus is put before it."""
    # The fourth section, and the last of one with `@` only, is for text.
    candidates = sections[:3]
    if len(candidates) > 1 and candidates[-1].has("at") and len(sections) < 4:
        candidates = candidates[:-1]
    if not any(section.condition for section in candidates):
        if number < 0 and len(candidates) > 1:
            return candidates[1], False
        if number == 0 and len(candidates) > 2:
            return candidates[2], False
        return candidates[0], True
    if len(candidates) > 1 and candidates[1].condition is None and len(candidates) > 2:
        # A second section without a condition is for negative numbers.
        candidates[1].condition = ("<", Decimal(0))
    for section in candidates:
        if section.condition is None or section.matches(number):
            # Words without a number have no sign.
            has_number = section.has("digit", "general")
            return section, has_number and not section.excludes_positive()
    return None, True


def _replace(tokens: Tokens, text: str) -> str:
    return "".join(text if kind in ("at", "general") else literal for kind, literal in tokens)


def _format_digits(value: Decimal, tokens: Tokens) -> tuple[str, bool]:
    """Return the text of a magnitude and whether every digit of it is zero."""
    kinds = [kind for kind, _ in tokens]
    value *= Decimal(100) ** kinds.count("%")
    if "digit" not in kinds:
        return "".join(text for _, text in tokens), value == 0
    if "exponent" in kinds:
        return _format_scientific(value, tokens, kinds.index("exponent"))
    if "/" in kinds[kinds.index("digit") :] and "." not in kinds:
        return _format_fraction(value, tokens)
    return _format_decimal(value, tokens)


def _format_decimal(value: Decimal, tokens: Tokens) -> tuple[str, bool]:
    kinds = [kind for kind, _ in tokens]
    digit_places = [place for place, kind in enumerate(kinds) if kind == "digit"]
    point = kinds.index(".") if "." in kinds else len(kinds)
    whole = [place for place in digit_places if place < point]
    decimals = [place for place in digit_places if place > point][:_MAX_DECIMALS]
    has_groups, scale = False, 0
    for place, kind in enumerate(kinds):
        if kind == ",":
            is_between = bool(whole) and whole[0] < place < whole[-1]
            has_groups |= is_between
            scale += not is_between and digit_places[0] < place
    value = (value / Decimal(1000) ** scale).quantize(
        Decimal(1).scaleb(-len(decimals)), ROUND_HALF_UP
    )
    digits, _, decimal_digits = f"{value:f}".partition(".")
    digits = digits.lstrip("0")
    texts = {place: text for place, (kind, text) in enumerate(tokens) if kind != ","}
    _fill_whole(texts, whole, digits, has_groups)
    if whole == [] and digits and point < len(kinds):
        texts[point] = digits + "."
    is_trailing = True
    for place, digit in reversed(list(zip(decimals, decimal_digits, strict=True))):
        is_trailing = is_trailing and digit == "0"
        texts[place] = {"0": "0", "?": " ", "#": ""}[texts[place]] if is_trailing else digit
    # Excel keeps the point of `0.#` without decimals, LibreOffice does not: "5." reads as an end.
    if point < len(kinds) and not any(texts[place] for place in decimals):
        texts[point] = texts[point].rstrip(".")
    return "".join(text for _, text in sorted(texts.items())), value == 0


def _fill_whole(texts: dict[int, str], places: list[int], digits: str, has_groups: bool) -> None:
    """Put digits in their places from the right; the first place takes those that remain."""
    count = 0
    for place in reversed(places):
        taken = digits[-1:] if place != places[0] else digits
        digits = digits[: len(digits) - len(taken)]
        shown = ""
        for digit in reversed(taken or {"0": "0", "?": " ", "#": ""}[texts[place]]):
            if has_groups and count and count % 3 == 0:
                shown = ("," if digit != " " else " ") + shown
            shown, count = digit + shown, count + 1
        texts[place] = shown


def _format_scientific(value: Decimal, tokens: Tokens, at: int) -> tuple[str, bool]:
    mantissa, exponent_tokens = tokens[:at], tokens[at + 1 :]
    kinds = [kind for kind, _ in mantissa]
    whole = kinds[: kinds.index(".") if "." in kinds else None].count("digit") or 1
    decimals = kinds.count("digit") - whole if "." in kinds else 0
    exponent = 0
    if value:
        exponent = value.adjusted() // whole * whole
        rounded = value.scaleb(-exponent).quantize(Decimal(1).scaleb(-decimals), ROUND_HALF_UP)
        if rounded.adjusted() >= whole:  # 9.99 was rounded to 10.0
            exponent += whole
        value = value.scaleb(-exponent)
    text, is_zero = _format_decimal(value, mantissa)
    sign = "-" if exponent < 0 else "+" if tokens[at][1].endswith("+") else ""
    texts = {place: text for place, (_, text) in enumerate(exponent_tokens)}
    places = [place for place, (kind, _) in enumerate(exponent_tokens) if kind == "digit"]
    _fill_whole(texts, places, str(abs(exponent)).lstrip("0"), False)
    return f"{text}E{sign}{''.join(texts.values())}", is_zero


def _format_fraction(value: Decimal, tokens: Tokens) -> tuple[str, bool]:
    slash = next(place for place, (kind, _) in enumerate(tokens) if kind == "/")
    places = [place for place, (kind, _) in enumerate(tokens) if kind == "digit"]
    # The numerator's places are those next to the slash; others belong to the whole number.
    start = slash
    while start and tokens[start - 1][0] == "digit":
        start -= 1
    whole, numerator = [p for p in places if p < start], [p for p in places if start <= p < slash]
    end = slash + 1
    while end < len(tokens) and (tokens[end][0] == "digit" or tokens[end][1].isdigit()):
        end += 1
    denominator_code = "".join(text for _, text in tokens[slash + 1 : end])
    fixed = int(denominator_code) if re.fullmatch(r"[0-9]*[1-9][0-9]*", denominator_code) else 0
    integer = int(value) if whole else 0
    rest = Fraction(value) - integer
    if fixed:
        over = int(rest * fixed + Fraction(1, 2))
        under = fixed
    else:
        near = rest.limit_denominator(10 ** min(len(denominator_code) or 1, 7) - 1)
        over, under = near.numerator, near.denominator
    if whole and over >= under:
        integer, over = integer + 1, 0
    texts = {place: text for place, (_, text) in enumerate(tokens)}
    _fill_whole(texts, whole, str(integer) if integer or not over else "", False)
    is_blank = bool(whole) and not over and not any(tokens[p][1] == "0" for p in numerator)
    _fill_whole(texts, numerator, "" if is_blank else str(over), False)
    shown = str(under) if fixed else f"{under:<{len(denominator_code)}}"
    for place in range(slash + 1, end):
        texts[place] = ""
    texts[end - 1] = shown
    if is_blank:
        for place in range(start, end):
            texts[place] = " "
    return "".join(texts.values()), integer == 0 and over == 0


def _format_date(number: Decimal, section: _Section, is_1904: bool) -> str | None:
    """Return None for a number that is no date, such as one below zero."""
    tokens = section.tokens
    has_elapsed = section.has("elapsed")
    if not (-_MAX_SERIAL if has_elapsed else 0) <= number < _MAX_SERIAL:
        return None
    decimals = max((len(text) - 1 for kind, text in tokens if kind == "second_fraction"), default=0)
    unit = 10 ** min(decimals, 6)
    # Serials are shares of a day in binary: 8:15 is stored a little below or above.
    ticks = int((abs(number) * _DAY_S * unit).to_integral_value(ROUND_HALF_UP))
    total_seconds, second_ticks = divmod(ticks, unit)
    moment = _to_moment(total_seconds, is_1904)
    elapsed = {"h": total_seconds // 3600, "m": total_seconds // 60, "s": total_seconds}
    has_noon = section.has("noon")
    texts = []
    for place, (kind, text) in enumerate(tokens):
        match kind:
            case "elapsed":
                texts.append(f"{elapsed[text[0].lower()]:0{len(text)}d}")
            case "noon":
                half = "PM" if moment.hour >= 12 else "AM"
                texts.append(half if len(text) > 3 else half[0])
            case "second_fraction":
                texts.append(f".{second_ticks:0{min(decimals, 6)}d}"[: len(text)])
            case "date":
                if text[0] == "m" and _is_minute(tokens, place):
                    texts.append(f"{moment.minute:0{min(len(text), 2)}d}")
                else:
                    texts.append(_format_date_field(moment, text, section.language, has_noon))
            case _:
                texts.append(text)
    return ("-" if number < 0 else "") + "".join(texts)


def _to_moment(seconds: int, is_1904: bool) -> datetime.datetime:
    moment = (_EPOCH_1904 if is_1904 else _EPOCH) + datetime.timedelta(seconds=seconds)
    if not is_1904 and 0 < seconds // _DAY_S < 60:
        # Spreadsheets count a 29 February 1900, so that earlier days are numbered one less.
        moment += datetime.timedelta(days=1)
    return moment


def _is_minute(tokens: Tokens, place: int) -> bool:
    """Return whether an `m` stands after hours or before seconds; else it is a month."""
    if len(tokens[place][1]) > 2:
        return False
    fields = ("date", "elapsed")
    before = next((text for kind, text in tokens[place - 1 :: -1] if kind in fields), "")
    after = next((text for kind, text in tokens[place + 1 :] if kind in fields), "")
    return (place > 0 and before[:1].lower() == "h") or after[:1].lower() == "s"


def _format_date_field(moment: datetime.datetime, field: str, language: int, noon: bool) -> str:
    names = _NAMES.get(language, _NAMES[_ENGLISH]).split(" ")
    size = min(len(field), 2)
    match field[0]:
        case "y" | "e":
            return f"{moment.year % 100:02d}" if field in ("y", "yy") else str(moment.year)
        case "m" if len(field) < 3:
            return f"{moment.month:0{size}d}"
        case "d" if len(field) < 3:
            return f"{moment.day:0{size}d}"
        case "m" | "d" as unit:
            name = names[moment.month - 1 if unit == "m" else 12 + moment.weekday()]
            length = {3: 3, 5: 1 if unit == "m" else 99}.get(len(field), 99)
            return name[:length]
        case "h":
            return f"{(moment.hour - 1) % 12 + 1 if noon else moment.hour:0{size}d}"
    return f"{moment.second:0{size}d}"
