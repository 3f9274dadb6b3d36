"""Find the terms of a question that an answer must be about: codes, numbers and names.

A passage about HX-9 is close in meaning to a question about HX-12, and does not answer it.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from retrieval.question.words import (
    MONTHS,
    NUMERALS,
    find_month_keys,
    fold_signs,
    is_function_word,
    split_words,
    stem_word,
    strip_accents,
)

# Questions and texts are cut by the same expression: a name that only one side cuts never matches.
# Typeset dashes and apostrophes, for questions, whose places must stay; texts have them folded.
_JOINER = r"[-./,:'\u2010-\u2015\u2212\u2019\u00ad\u00d7]"
_TOKEN = re.compile(rf"\d{{1,3}}(?:[ \u00a0\u2009\u202f]\d{{3}})+(?!\w)|\w+(?:{_JOINER}\w+)*")
_PARTS = re.compile(r"[-./,:']")
# Names on both sides of these are two names.
_NAME_BREAK = re.compile(r"[/,:]")
_POSSESSIVE = re.compile(r"['\u2019]s$", re.I)
_ELIDED_ARTICLE = re.compile(r"^(?:[a-z]|qu)['\u2019](?=[^\W\d_a-z])")
# A run of letters or of digits, and what separates it from the next one.
_RUN = re.compile(r"([^\W\d_]+|\d+)((?:[^\w]|_)*)")
# 1,250,000 and 501 234 567, of one kind of separators.
_DIGIT_GROUPS = re.compile(r"(?<![\w.,])\d{1,3}([., '])\d{3}(?:\1\d{3})*(?!\w)")
# In "opened in 12 cities", IN-12 is not named, but 120 x 80 is 120x80.
_SMALL_WORD_AND_NUMBER = re.compile(r"(?<=[a-z])(?<!\d x) (?=\d)")
_ACRONYM = re.compile(r"(?<!\w)(?:[A-Z]\.?){2,5}(?!\w)")
_RANGE = re.compile(
    r"(?<![\w.,])(\d{1,4}) ?(?:to|until|through|and|a|até|e|hasta|y|bis|und|à|et|[-–—]) ?(\d{1,4})"
    r"(?![\w]|[.,]\d)"
)
# Wider pairs of numbers are rarely ranges: "between 9 and 2000".
_MAX_RANGE = 400
_SENTENCE_END = re.compile(r"[.!?:¿¡\"“«(]\s*$")
# Languages that capitalize every noun, where a capital marks no name.
_CAPITALIZING_LANGUAGES = ("de",)
# 10:30, 10h30, 5kg, 20th, 3/5/2024, 1.50: times, amounts and dates may be written otherwise.
_MEASURE = re.compile(r"\d+(?:[.,:/-]\d+)+$|\d[\d.,]*(?:h\d*|[a-zº°]+)$")
_YEAR = re.compile(r"(?:1[5-9]|20)\d\d$")
_NEXT_WORD = re.compile(r"\s*(?P<word>[^\W\d_]+|[%‰€$£°])")
MAX_ALTERNATIVES = 4
# "Plant 3", "plants 1, 2 and 4", "phase two", "chamber B", and in a table "Chamber: B".
_LINK = r"(?:, ?| ?[-–] ?| (?:and|or|to|und|oder|bis|e|ou|y|et|a|à) )"
_LABEL = re.compile(
    rf"(?<![\w-])(?P<noun>[^\W\d_]{{3,30}}):?[ \t]+"
    rf"(?:(?P<numbers>\d{{1,3}}(?:{_LINK}\d{{1,3}}){{0,9}})|(?P<letters>[A-Z](?:{_LINK}[A-Z]){{0,9}}))"
    r"(?![\w%°'’]|[.,:/&-]\w)"
)
_SPELLED_LABEL = re.compile(
    r"(?<![\w-])(?P<noun>[^\W\d_]{3,30})[ \t]+(?P<numbers>[^\W\d_]{2,12})\b"
)
_LABEL_RANGE = re.compile(r"[-–]|\b(?:to|bis|a|à)\b")
# The header and the rows of a Markdown table from its first cells, and the labels in these.
_FIRST_COLUMN = re.compile(
    r"^\|([^|\n]*)\|[^\n]*\n\|[ :-]*-[ :|-]*\n((?:\|[^\n]*(?:\n|\Z))+)", re.MULTILINE
)
_CELL_LABEL = re.compile(r"^\|\s*(\d{1,3}|[A-Z])\s*\|", re.MULTILINE)
# Fewer do not show that the number tells things apart.
_MIN_LABELS = 2


@dataclass(frozen=True, slots=True)
class QuestionTerms:
    """`codes` contain a digit, and `names` are capitalized words.

    `identifiers` are the codes that say what the question is about, as HX-12, 2014 and the 45 of
    "week 45" do, and not how much, as the 15 of "15 guests" does.
    """

    codes: tuple[str, ...]
    names: tuple[str, ...]
    identifiers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TextTerms:
    """The terms that a text holds, for many look-ups."""

    tokens: frozenset[str]
    stems: frozenset[str]
    ranges: tuple[tuple[int, int], ...]
    labels: Mapping[str, frozenset[str]] = field(default_factory=dict)
    # Runs of letters and of digits, behind "~" where nothing separates them, behind a blank where a
    # sign or blank does, and behind "|" elsewhere.
    runs: str = "||"
    acronyms: frozenset[str] = frozenset()

    def holds_code(self, code: str) -> bool:
        """Tell whether the text holds the code, or a range of numbers that includes it.

        KX5510 and KX 5510 are KX-5510, and 1250000 is 1,250,000.
        """
        folded_code = _fold(code)
        if any(char.isalpha() for char in folded_code):
            return self._holds_runs(_join_digit_groups(folded_code))
        if folded_code in self.tokens or _join_digit_groups(folded_code) in self.tokens:
            return True
        if folded_code.isdecimal() and len(folded_code) <= 4:
            return any(low <= int(folded_code) <= high for low, high in self.ranges)
        return False

    def holds_name(self, name: str) -> bool:
        """Tell whether the text holds the name, with other signs or none between its parts."""
        if is_function_word(name):
            return name in self.acronyms
        folded_name = _fold(name)
        if len(_RUN.findall(folded_name)) < 2:
            return stem_word(name) in self.stems
        return _PARTS.sub("", folded_name) in self.tokens or self._holds_runs(folded_name, "e?s?")

    def _holds_runs(self, term: str, ending: str = "") -> bool:
        pattern = "[ ~]".join(run for run, _ in _RUN.findall(term))
        return re.search(rf"[ |]{pattern}{ending}[ |]", self.runs) is not None

    def has_label(self, noun: str, label: str) -> bool:
        return label in self.labels.get(stem_word(noun), ())

    def lacks_label(self, noun: str, label: str, *, is_name: bool = False) -> bool:
        """Tell whether the text labels such things, and none with this number or letter.

        A single other label shows it behind a name, as in "Aurora 5".
        """
        is_held = self.has_label(noun, label) or (len(label) > 1 and self.holds_code(label))
        n_required = 1 if is_name else _MIN_LABELS
        return len(self.labels.get(stem_word(noun), ())) >= n_required and not is_held


def find_question_terms(question: str, language: str | None) -> QuestionTerms:
    """Return the codes and names of the question, each once.

    A number of one digit is a quantity that may be spelled out, so it is no code.
    """
    codes: dict[str, None] = {}
    names: dict[str, None] = {}
    identifiers: dict[str, None] = {}
    # In a title, capitals mark no names.
    has_lower_case = any(
        word[0].islower() and not is_function_word(word)
        for word in re.findall(r"[^\W\d_]{2,}", question)
    )
    for match in _TOKEN.finditer(question):
        token = _POSSESSIVE.sub("", match.group())
        if any(char.isdigit() for char in token):
            if len(token) > 1:
                codes[token] = None
                if _is_identifier(token, question[match.end() :]):
                    identifiers[token] = None
        elif (
            has_lower_case
            and language not in _CAPITALIZING_LANGUAGES
            and question[: match.start()].strip()
            and not _SENTENCE_END.search(question[: match.start()])
        ):
            parts = [_ELIDED_ARTICLE.sub("", part) for part in _NAME_BREAK.split(token)]
            names.update(dict.fromkeys(filter(_is_name, parts)))
    return QuestionTerms(tuple(codes), tuple(names), tuple(identifiers))


def _is_name(token: str) -> bool:
    # In capitals, WHO and IT are acronyms.
    if is_function_word(token):
        return len(token) > 1 and token.isupper()
    return len(token) > 2 and token[0].isupper()


def _is_identifier(token: str, following: str) -> bool:
    """Tell whether a token with a digit names something, rather than counting or measuring it."""
    if _MEASURE.match(token):
        return False
    if any(char.isalpha() for char in token) or _YEAR.match(token):
        return True
    next_word = _NEXT_WORD.match(following)
    return token.isdecimal() and (next_word is None or is_function_word(next_word["word"]))


def list_codes(text: str) -> list[str]:
    """Return the codes with letters and digits, but no measures such as 10:30, 5kg or 20th."""
    return [
        token
        for match in _TOKEN.finditer(text)
        for token in [_POSSESSIVE.sub("", match.group())]
        if any(map(str.isdigit, token))
        and any(map(str.isalpha, token))
        and not _MEASURE.match(token)
    ]


def find_labels(question: str) -> list[tuple[str, str]]:
    """Return the numbered or lettered things that the question names, as noun and label."""
    labels = [
        (match["noun"], label)
        for match in _LABEL.finditer(question)
        for label in [_normalize_label(match["numbers"] or match["letters"])]
        # "Should I pay?"
        if label.isalnum() and label != "I"
    ]
    for match in _SPELLED_LABEL.finditer(question):
        value = NUMERALS.get(_fold(match["numbers"]))
        if value is not None and stem_word(match["numbers"]) == str(value):
            labels.append((match["noun"], str(value)))
    return [
        (noun, label)
        for noun, label in labels
        if not (is_function_word(noun) or _fold(noun) in MONTHS)
    ]


def _normalize_label(label: str) -> str:
    return str(int(label)) if label.isdecimal() else label


def index_labels(text: str, *, includes_counts: bool = False) -> dict[str, frozenset[str]]:
    """Return the labels behind each noun; numbers that count a following word are none, unless
    these are included.

    Behind a capital, as in "the Aurora 5 heat pump", a number counts nothing.
    """
    labels: dict[str, set[str]] = defaultdict(set)
    for match in _LABEL.finditer(text):
        next_word = _NEXT_WORD.match(text, match.end())
        if (
            includes_counts
            or match["letters"]
            or match["noun"][0].isupper()
            or next_word is None
            or is_function_word(next_word["word"])
        ):
            labels[stem_word(match["noun"])].update(_list_labels(match))
    for header, cells in _FIRST_COLUMN.findall(text):
        found = _CELL_LABEL.findall(cells)
        if names := re.findall(r"[^\W\d_]{3,30}", header):
            labels[stem_word(names[-1])].update(map(_normalize_label, found))
    return {noun: frozenset(found) for noun, found in labels.items()}


def _list_labels(match: re.Match[str]) -> list[str]:
    label = match["numbers"] or match["letters"]
    found = sorted(re.findall(r"\d+|[A-Z]", label), key=lambda part: (len(part), part))
    if not _LABEL_RANGE.search(label):
        return [_normalize_label(part) for part in found]
    if match["letters"]:
        return [chr(code) for code in range(ord(found[0]), ord(found[-1]) + 1)]
    return [str(number) for number in range(int(found[0]), int(found[-1]) + 1)]


def index_text_terms(texts: Iterable[str]) -> TextTerms:
    original = "\n".join(texts)
    text = _fold(original)
    tokens: set[str] = set()
    for match in _TOKEN.finditer(text):
        token = match.group()
        parts = _PARTS.split(token)
        # 2,450 and 2.450 and 2450 are one number, and wi-fi and wifi one name.
        tokens.update((token, "".join(parts), *filter(None, parts)))
    joined = _join_digit_groups(text)
    tokens.update(_join_digit_groups(match.group()) for match in _DIGIT_GROUPS.finditer(text))
    ranges = [(int(low), int(high)) for low, high in _RANGE.findall(text)]
    stems = {stem_word(word) for word in (*split_words(text), *tokens)} | find_month_keys(text)
    spaced = _SMALL_WORD_AND_NUMBER.sub("  ", strip_accents(fold_signs(original))).lower()
    return TextTerms(
        frozenset(tokens),
        frozenset(stems),
        tuple((low, high) for low, high in ranges if low < high <= low + _MAX_RANGE),
        index_labels(strip_accents(fold_signs(original))),
        _join_runs(spaced) + (_join_runs(_join_digit_groups(spaced)) if joined != text else ""),
        frozenset(name.replace(".", "") for name in _ACRONYM.findall(original)),
    )


def _join_runs(text: str) -> str:
    pieces = ["|"]
    for run, gap in _RUN.findall(text):
        pieces += (run, "|" if len(gap) > 1 or gap == "\n" else " " if gap else "~")
    return "".join(pieces).rstrip("~") + "|"


def _join_digit_groups(text: str) -> str:
    return _DIGIT_GROUPS.sub(lambda match: match.group().replace(match[1], ""), text)


def find_alternatives(missing: Iterable[str], texts: Iterable[str]) -> list[str]:
    """Return the codes of the shape of a missing one that the texts hold: HX-9 for HX-12.

    A bare number has no alternatives: any other number would do.
    """
    shapes = {_get_shape(code) for code in missing}
    shapes = {shape for shape in shapes if "0" in shape and shape.strip("0-./,:")}
    counts = Counter(
        match.group()
        for text in texts
        for match in _TOKEN.finditer(fold_signs(text))
        if shapes and _get_shape(match.group()) in shapes
    )
    return sorted(code for code, _ in counts.most_common(MAX_ALTERNATIVES))


def _get_shape(token: str) -> str:
    """Return the token with every run of digits as `0`, and without a letter that ends it."""
    return re.sub(r"\d+", "0", re.sub(r"(?<=\d)[a-z]$", "", _fold(token)))


def _fold(text: str) -> str:
    return strip_accents(fold_signs(text.lower()))


_CODE_JOINT = re.compile(r"(?<=[^\W\d_])(?=\d)|(?<=\d)(?=[^\W\d_])")


def list_code_spellings(question: str) -> list[str]:
    """Return the codes of the question joined and hyphenated, where written otherwise: KX5510 and
    KX-5510 are different words of the lexical index.
    """
    folded = fold_signs(question)
    spellings: dict[str, None] = {}
    for code in find_question_terms(folded, None).codes:
        joined = _PARTS.sub("", code)
        if any(char.isalpha() for char in code):
            spellings |= dict.fromkeys((joined, _CODE_JOINT.sub("-", joined)))
    return [spelling for spelling in spellings if spelling not in question]


_PHRASE = re.compile(r"(?<!\w)[\"“”„]([^\"“”„]{2,120})[\"“”](?!\w)")
_EXCLUDED_WORD = re.compile(r"(?<=\s)-([^\W\d_]{2,40})(?![\w-])")


def find_phrases(question: str) -> list[str]:
    """Return the phrases in double quotation marks, which an answer must hold as they are."""
    return [phrase for phrase in _PHRASE.findall(question) if split_words(phrase)]


def find_excluded_words(question: str) -> list[str]:
    """Return the words behind a minus sign, as in "rent -parking"."""
    return _EXCLUDED_WORD.findall(question)


def holds_phrase(texts: Iterable[str], phrase: str) -> bool:
    """Tell whether the texts hold the words of the phrase in their order."""
    words = " ".join(split_words(_fold(phrase)))
    return f" {words} " in f" {' '.join(split_words(_fold(' '.join(texts))))} "
