"""Find personal identifiers in text: SSN, e-mail, phone, payment card, CPF and CNPJ.

Numbers are checked by their check digits (python-stdnum) and numbering plans (phonenumbers). A
number that only looks like one, such as an IBAN, a date, a version or an order code, is none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from stdnum import ean, iban, luhn
from stdnum.br import cnpj, cpf

from schemas.values import IdentifierKind

# Also the hyphens and spaces that typesetting puts in place of the plain ones.
_DASH, _SPACE = "[-‐‑–]", "[ \u00a0\u202f]"
# Soft hyphens, joiners and spaces without width, which may stand anywhere in a word, and the first
# half of a line break of Windows.
_INVISIBLE = re.compile("[\r\u00ad\u200b-\u200d\u2060\ufeff]")
# A line break within a number is read as a space, which may also follow another separator.
_LINE_BREAK = re.compile(r"(?<!\n)\n(?!\n)")
# Not inside a longer code: neither a word nor "ORD-" may precede, and no digit may follow.
_START, _END = r"(?<!\w)(?<!\w[-./])", r"(?!\w)(?![-./]\d)"

# A line may end behind a separator of the address, and Markdown may escape its underscores. The
# number of quotation marks is limited because a match may begin behind each.
_EMAIL = re.compile(
    r"(?<![\w.+%\\-])[\w.+%\\-]++(?:['’&][\w.+%\\-]++){0,3}+@\n?"
    r"(?:[\w-]++(?:(?<=-)\n[\w-]++)*+\.(?:\n(?=[a-z]))?)+[^\W\d_]{2,}"
)
_SSN = re.compile(
    rf"{_START}(?!000|666|9)\d{{3}}(?P<separator>{_DASH}|{_SPACE}|) ?(?!00)\d{{2}}"
    rf"(?P=separator) ?(?!0000)\d{{4}}{_END}"
)
_CPF = re.compile(
    rf"{_START}(?:\d{{3}}(?:\. ?)?\d{{3}}(?:\. ?)?\d{{3}}(?:{_DASH} ?)?"
    rf"|(?:\d{{3}}(?:\.|{_SPACE}) ?){{2}}\d{{3}}(?:{_DASH}|{_SPACE}) ?)\d{{2}}{_END}"
)
# Letters since 2026 (Instrução Normativa RFB 2.229/2024), but in the punctuated form only.
_CNPJ = re.compile(
    rf"{_START}(?:[\dA-Z]{{2}}\. ?[\dA-Z]{{3}}\. ?[\dA-Z]{{3}}/ ?[\dA-Z]{{4}}{_DASH} ?\d{{2}}"
    rf"|\d{{2}}(?:(?:\.|{_SPACE}) ?\d{{3}}){{2}}(?:/|{_SPACE}) ?\d{{4}}"
    rf"(?:{_DASH}|{_SPACE}) ?\d{{2}}"
    rf"|\d{{8}}(?:/ ?)?\d{{4}}(?:{_DASH} ?)?\d{{2}}){_END}"
)
_CARD = re.compile(
    rf"{_START}(?<![A-Z]{{2}}\d\d )(?=[2-6])"
    rf"(?:\d{{4}}(?P<four>{_SPACE}|{_DASH}|\.) ?(?:\d{{4}}(?P=four) ?){{2}}\d{{1,7}}"
    rf"|\d{{4}}(?P<six>{_SPACE}|{_DASH}|\.) ?\d{{6}}(?P=six) ?\d{{4,5}}|\d{{13,19}})(?!\w)"
)
# Visa, Elo; Mastercard, Mir; Maestro, UnionPay, Discover; American Express; Diners; JCB. Rules out
# a time stamp such as 20240115123045.
_CARD_ISSUER = re.compile(
    r"(?:4\d{12}(?:\d{3}){0,2}|(?:5[1-5]|2[2-7])\d{14}|(?:5[06-8]|6)\d{11,17}|220\d{13,16}"
    r"|3[47]\d{13}|3[0689]\d{12,17}|35\d{14,17})"
)
_IBAN = re.compile(r"(?<!\w)[A-Z]{2}\d{2}(?: ?[A-Z0-9]{1,4}){3,8}(?!\w)")
# Dates and times, UUIDs, and addresses of the Internet protocol: groups of digits as in a phone
# number.
_OTHER = re.compile(
    r"\b\d{4}-\d\d-\d\d(?![-\d])(?:[T ]\d\d:\d\d(?::\d\d)?(?:\.\d+)?)?"
    r"|\b[\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12}\b"
    r"|(?<![\d.+])\d{1,3}(?:\.\d{1,3}){3}(?![\d.])"
)
# A word that touches a number is not part of it, as "number4111…" or "tel.415…" in the text of a
# PDF. The capitals of a code such as PO4111… are, unless they name the identifier.
_TOUCHING_WORD = re.compile(
    r"[^\W\d_][^\W\d_A-Z]{2}(?=\(?\d)|[^\W\d_A-Za-z]{2}(?=\(?\d)"
    r"|(?:CPF|CNPJ|SSN|CARD|VISA|TEL|PHONE|FONE|FAX|cpf|cnpj|ssn|[Cc]ard|[Tt]el)[-./_]?(?=\(?\d)"
    r"|\d(?=[^\W\d_][^\W\d_A-Z]{2}|[^\W\d_A-Za-z]{2})"
)
_SSN_CUE = re.compile(r"\b(?:ssn|social security)\b", re.I)
_PHONE_CUE = re.compile(
    r"\b(?:tel|phone|fax|mobile|cell|call|celular|fone|m[óo]vil|t[ée]l[ée]|whatsapp|ligue|llam"
    r"|appel|mobil|handy|rufnummer|contact|contato|sms)",
    re.I,
)
# Says that the number behind it is a phone number, also of an area that does not exist.
_PHONE_LABEL = re.compile(
    r"(?<![^\W\d_])(?:tel|(?:tel[eé])?(?:phone|fone?|fono)|celular|fax|whatsapp)"
    r"(?: ?(?:no|nr|number|n[°º]))?[\s.:#=|_-]{0,3}\Z",
    re.I,
)
_CUE_DISTANCE = 30
_PHONE_DIGITS = re.compile(r"\d(?:[\s().+/‐‑–-]{0,3}\d){6}")
_BROKEN_DIGITS = re.compile(r"\d[ ().+/‐‑–-]{0,3}\n[ ().+/‐‑–-]{0,3}\d")
_SEPARATED = re.compile(r"\d[\s().‐‑–-]+(?=\d)")
_MAX_PHONE_TRIES = 10_000


@dataclass(frozen=True, slots=True)
class Identifier:
    kind: IdentifierKind
    start: int
    end: int


def find_identifiers(
    text: str, kinds: Collection[IdentifierKind], phone_regions: Sequence[str]
) -> list[Identifier]:
    """Return the identifiers of the given kinds in order of the text, without overlaps.

    `phone_regions` are the countries (ISO 3166) whose national numbers are recognized; numbers
    with a `+` are recognized for every country.
    """
    # Most texts hold neither, and need no search.
    if not kinds or not ("@" in text or any(char.isdigit() for char in text)):
        return []
    if _INVISIBLE.search(text):
        places = [index for index, char in enumerate(text) if not _INVISIBLE.match(char)]
        visible = "".join(text[index] for index in places)
        return [
            Identifier(item.kind, places[item.start], places[item.end - 1] + 1)
            for item in find_identifiers(visible, kinds, phone_regions)
        ]
    claimed = bytearray(len(text))
    found: list[Identifier] = []

    def claim(kind: IdentifierKind | None, ranges: Iterable[tuple[int, int]]) -> None:
        for start, end in ranges:
            if kind is None or not any(claimed[start:end]):
                claimed[start:end] = b"x" * (end - start)
                if kind is not None:
                    found.append(Identifier(kind, start, end))

    # The first that claims a range keeps it: an address may hold a date, and a card number may
    # read like a phone number.
    if "email" in kinds:
        claim("email", (match.span() for match in _EMAIL.finditer(text)))
    claim(None, (*_find_ibans(text), *(match.span() for match in _OTHER.finditer(text))))
    separated, origins = _separate_words(text)
    for kind in (kind for kind in _FINDERS if kind in kinds):
        ranges = _FINDERS[kind](separated, phone_regions)
        claim(kind, ((origins[start], origins[end - 1] + 1) for start, end in ranges))
    return sorted(found, key=lambda item: item.start)


def _separate_words(text: str) -> tuple[str, Sequence[int]]:
    """Return the text with spaces between numbers and words that touch them, and the place of each
    of its characters in the original.
    """
    cuts = [match.end() for match in _TOUCHING_WORD.finditer(text)]
    if not cuts:
        return text, range(len(text))
    pieces = [text[start:end] for start, end in pairwise([0, *cuts, len(text)])]
    inserted = set(cuts)
    places = [
        place
        for index in range(len(text))
        for place in ((index, index) if index in inserted else (index,))
    ]
    return " ".join(pieces), places


def _join_lines(text: str) -> str:
    """Return the text, of the same length, without its single line breaks."""
    return _LINE_BREAK.sub(" ", text)


def _find_valid(
    pattern: re.Pattern[str], is_valid: Callable[[str], bool], text: str, _: Sequence[str]
) -> Iterator[tuple[int, int]]:
    matches = pattern.finditer(_join_lines(text))
    return (match.span() for match in matches if is_valid(match.group()))


def _find_cards(text: str, _: Sequence[str]) -> Iterator[tuple[int, int]]:
    for match in _CARD.finditer(_join_lines(text)):
        digits = "".join(filter(str.isdigit, match.group()))
        # Thirteen digits may also be the code of a product.
        is_product = len(digits) == 13 and ean.is_valid(digits)
        if _CARD_ISSUER.fullmatch(digits) and luhn.is_valid(digits) and not is_product:
            yield match.span()


def _find_ssns(text: str, _: Sequence[str]) -> Iterator[tuple[int, int]]:
    for match in _SSN.finditer(_join_lines(text)):
        # Nine digits that are not grouped by hyphens may be anything.
        if match["separator"].strip() or _SSN_CUE.search(_text_before(text, match.start())):
            yield match.span()


def find_unknown_regions(regions: Iterable[str]) -> list[str]:
    """Return the region codes (ISO 3166-1) that `phonenumbers` has no numbering plan for."""
    from phonenumbers import SUPPORTED_REGIONS

    return [region for region in regions if region not in SUPPORTED_REGIONS]


def _find_phones(text: str, regions: Sequence[str]) -> Iterator[tuple[int, int]]:
    if not _PHONE_DIGITS.search(text):
        return
    yield from _match_phones(text, regions)
    # After those within a line: digits may begin the line below a number.
    if _BROKEN_DIGITS.search(text):
        yield from _match_phones(_join_lines(text), regions)


def _match_phones(text: str, regions: Sequence[str]) -> Iterator[tuple[int, int]]:
    # Loads the numbering plans, which a start need not wait for.
    from phonenumbers import Leniency, PhoneNumberMatcher

    for region in (None, *regions):
        for match in PhoneNumberMatcher(text, region, Leniency.VALID, _MAX_PHONE_TRIES):
            if (
                match.raw_string.lstrip("(").startswith("+")
                or _PHONE_CUE.search(_text_before(text, match.start))
                # A bare national number may be an order number.
                or (region and _is_grouped(match.raw_string, region))
            ):
                yield match.start, match.end
    for region in regions if _PHONE_CUE.search(text) else ():
        for match in PhoneNumberMatcher(text, region, Leniency.POSSIBLE, _MAX_PHONE_TRIES):
            if _PHONE_LABEL.search(_text_before(text, match.start)):
                yield match.start, match.end


def _is_grouped(number: str, region: str) -> bool:
    """Tell whether the digits are grouped as the country writes its phone numbers."""
    from phonenumbers import Leniency, PhoneNumberMatcher

    is_area_marked = "(" in number
    return (is_area_marked or len(_SEPARATED.findall(number)) >= 2) and PhoneNumberMatcher(
        number, region, Leniency.STRICT_GROUPING, 1
    ).has_next()


def _find_ibans(text: str) -> Iterator[tuple[int, int]]:
    for match in _IBAN.finditer(text):
        # Words in capitals may follow: the number ends where its check digits fit.
        end = match.end()
        while end > match.start():
            if iban.is_valid(text[match.start() : end]):
                yield match.start(), end
                break
            end = text.rfind(" ", match.start(), end)


_FINDERS: Mapping[IdentifierKind, Callable[[str, Sequence[str]], Iterator[tuple[int, int]]]] = {
    "cnpj": partial(_find_valid, _CNPJ, cnpj.is_valid),
    "cpf": partial(_find_valid, _CPF, cpf.is_valid),
    "card": _find_cards,
    "ssn": _find_ssns,
    "phone": _find_phones,
}


def _text_before(text: str, start: int) -> str:
    return text[max(0, start - _CUE_DISTANCE) : start]
