"""Extract quote candidates: sentences and table rows of the contexts, with their positions.

Headings are no answers however many words they share with the query. The chunker marks its own;
others are plain lines, from scans and plain texts, recognized by form.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from retrieval.context_packing import ContextPassage
from retrieval.words import split_words
from schemas.ports.engines import SentenceSplitter
from schemas.ports.search import ChunkView

_HEADING = re.compile(r"#{1,6}\s")
_LIST_MARK = re.compile(r"(?:[-*+•]|\d{1,3}[.)])\s+")
# Possessive quantifiers keep matching linear on hostile lines.
_TABLE_RULE = re.compile(r"(?=[\s:|]*+-[\s:-]*+\|)[\s:|-]*+$")
_LINE = re.compile(r"[^\n]*\n?")


@dataclass(frozen=True, slots=True)
class QuoteCandidate:
    """A span of a chunk: `text` is `chunk.text[start:end]`.

    For a table row, `header` holds the column names, and `header_span` their place in the chunk,
    which the header of a split table lacks.
    """

    context: ContextPassage
    chunk: ChunkView
    start: int
    end: int
    header: tuple[str, ...] | None = None
    header_span: tuple[int, int] | None = None

    @property
    def text(self) -> str:
        return self.chunk.text[self.start : self.end]

    @property
    def is_row(self) -> bool:
        return self.text.lstrip().startswith("|")

    @property
    def readable_text(self) -> str:
        """The text without line breaks; for a table row, its cells, each after its column name."""
        if not self.is_row:
            return " ".join(self.text.split())
        values = split_cells(self.text)
        names = self.header or ()
        return "; ".join(
            f"{name}: {value}" if name else value
            for name, value in zip([*names, *[""] * len(values)], values, strict=False)
            if value
        )


def extract_quote_candidates(
    contexts: Sequence[ContextPassage], sentences: SentenceSplitter
) -> list[QuoteCandidate]:
    """Return candidates in order of contexts and text, without repeated texts.

    Children may overlap. Headings are included only for contexts that contain nothing else.
    """
    candidates: dict[tuple[int, str], QuoteCandidate] = {}
    for context in contexts:
        context_candidates = [
            candidate
            for chunk in context.children
            for candidate in _exclude_names(context, chunk, sentences)
        ]
        for candidate in context_candidates or [
            candidate
            for chunk in context.children
            for candidate in _split_chunk(context, chunk, sentences, include_headings=True)
        ]:
            candidates.setdefault((context.n, candidate.readable_text), candidate)
    return list(candidates.values())


def _exclude_names(
    context: ContextPassage, chunk: ChunkView, sentences: SentenceSplitter
) -> Iterator[QuoteCandidate]:
    """Drop candidates that merely repeat the document's title or a heading of the passage."""
    names = [chunk.title or "", *context.view.section.split(" > "), *chunk.prefix.splitlines()]
    return (
        candidate
        for candidate in _split_chunk(context, chunk, sentences)
        if candidate.is_row or not is_heading_name(candidate.text, names)
    )


def _split_chunk(
    context: ContextPassage,
    chunk: ChunkView,
    sentences: SentenceSplitter,
    *,
    include_headings: bool = False,
) -> Iterator[QuoteCandidate]:
    if chunk.kind == "summary":
        return  # written by the parser, not by the document's author
    header: tuple[str, ...] | None = (
        parse_prefix_header(chunk.prefix) if chunk.text.lstrip().startswith("|") else None
    )
    header_span: tuple[int, int] | None = None
    yield from (
        QuoteCandidate(context, chunk, start, end)
        for start, end in find_marked_headings(chunk.text)
        if include_headings
    )
    for kind, start, end in split_blocks(chunk.text):
        if kind == "header":
            names = tuple(split_cells(chunk.text[start:end]))
            header, header_span = (names, (start, end)) if any(names) else (None, None)
        elif kind == "row":
            yield QuoteCandidate(context, chunk, start, end, header, header_span)
        else:
            # Prose ends the table: the next row belongs to another one.
            header = header_span = None
            for sentence_start, sentence_end in (
                ()
                if not include_headings and _is_heading_line(chunk.text, start, end)
                else sentences.split(chunk.text[start:end])
            ):
                yield from _trim_candidate(
                    context, chunk, start + sentence_start, start + sentence_end
                )


def _is_heading_line(text: str, start: int, end: int) -> bool:
    """True for a line by itself, no list item, that reads like a heading and has text below it."""
    is_single_line = text[:start].rpartition("\n")[2].strip() == "" and bool(text[end:].strip())
    return is_single_line and is_heading_like(text[start:end])


def _trim_candidate(
    context: ContextPassage, chunk: ChunkView, start: int, end: int
) -> Iterator[QuoteCandidate]:
    text = chunk.text[start:end]
    start += len(text) - len(text.lstrip())
    end -= len(text) - len(text.rstrip())
    if any(char.isalnum() for char in chunk.text[start:end]):
        yield QuoteCandidate(context, chunk, start, end)


def split_blocks(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield (`prose`, `row` or `header`, start, end) of runs of prose and of each line of a table.

    Headings, blank lines and table rules are skipped. A list item begins a new run, after its mark.
    """
    lines = [(match.start(), match.group()) for match in _LINE.finditer(text) if match.group()]
    prose_start: int | None = None
    for number, (start, line) in enumerate(lines):
        stripped = line.strip()
        list_mark = _LIST_MARK.match(line.lstrip())
        ends_prose = (
            not stripped or stripped.startswith("|") or _HEADING.match(stripped) or list_mark
        )
        if prose_start is not None and ends_prose:
            yield "prose", prose_start, start
            prose_start = None
        if stripped.startswith("|"):
            if not _TABLE_RULE.match(stripped):
                row_start = start + len(line) - len(line.lstrip())
                yield (
                    ("header" if _is_table_rule(lines, number + 1) else "row"),
                    row_start,
                    row_start + len(stripped),
                )
        elif list_mark:
            prose_start = start + len(line) - len(line.lstrip()) + list_mark.end()
        elif stripped and not _HEADING.match(stripped) and prose_start is None:
            prose_start = start
    if prose_start is not None:
        yield "prose", prose_start, len(text)


def _is_table_rule(lines: Sequence[tuple[int, str]], line_number: int) -> bool:
    return (
        line_number < len(lines)
        and lines[line_number][1].strip().startswith("|")
        and bool(_TABLE_RULE.match(lines[line_number][1].strip()))
    )


def parse_prefix_header(prefix: str) -> tuple[str, ...] | None:
    """Return the column names of a split table, whose header row is in the chunk's prefix."""
    rows = [
        line
        for line in prefix.splitlines()
        if line.strip().startswith("|") and not _TABLE_RULE.match(line.strip())
    ]
    return tuple(split_cells(rows[-1])) if rows else None


def split_cells(row: str) -> list[str]:
    """Return the cell texts of a Markdown table row; escaped bars do not separate cells."""
    parts = re.split(r"(?<!\\)\|", row.strip().removeprefix("|").removesuffix("|"))
    return [part.replace("\\|", "|").strip() for part in parts]


MARKDOWN_HEADING = re.compile(r"[ \t]*#{1,6}[ \t]+(?P<words>[^\n]*\S)")
# Longest unmarked line that may be a heading.
MAX_HEADING_WORDS = 10
_CLOSING_PUNCTUATION = re.compile(r"[.!?…:;,|][\"'”’»)\]*_`]*$")
_STATEMENT = re.compile(r"[:=|]|,\s")
_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})")
_VALUE_TYPES: Sequence[AnswerType] = ("money", "percentage", "date", "contact")


def find_marked_headings(text: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of the words of Markdown headings."""
    yield from (
        match.span("words")
        for line in re.finditer(r"[^\n]+", text)
        if (match := MARKDOWN_HEADING.match(text, line.start(), line.end()))
    )


def resolve_section(text: str, section: str, offset: int) -> str:
    """Return the heading path at `offset` of a passage whose own path is `section`.

    A short document is one passage with several headings.
    """
    path: list[tuple[int, str]] = []
    fence = ""
    for line in re.finditer(r"[^\n]+", text[:offset]):
        # A `#` inside fenced code is no heading.
        fence_match = _FENCE.match(line.group())
        if fence_match and (not fence or fence_match[1].startswith(fence)):
            fence = "" if fence else fence_match[1]
        elif not fence and (heading := MARKDOWN_HEADING.match(line.group())):
            level = len(line.group().split(None, 1)[0])
            path = [(other_level, name) for other_level, name in path if other_level < level] + [
                (level, " ".join(heading["words"].strip("# ").split()))
            ]
    names = [name for _, name in path]
    outer_sections = section.split(" > ") if section else []
    # The text may begin with headings that the passage's own path already has.
    if names and names[0] in outer_sections:
        outer_sections = outer_sections[: outer_sections.index(names[0])]
    return " > ".join([*outer_sections, *names])


def is_heading_name(text: str, names: Iterable[str]) -> bool:
    """Tell whether the text is a name (title, part of the section path), numbering aside."""
    text_words = _strip_numbering(text)
    return bool(text_words) and any(text_words == _strip_numbering(name) for name in names)


def is_heading_like(text: str) -> bool:
    """True for one short line without closing punctuation and without a value."""
    line = text.strip()
    if (
        "\n" in line
        or not 0 < len(line.split()) <= MAX_HEADING_WORDS
        or _CLOSING_PUNCTUATION.search(line)
        or _STATEMENT.search(line)
    ):
        return False
    return not any(find_value(kind, line, "") for kind in _VALUE_TYPES)


def _strip_numbering(text: str) -> list[str]:
    text_words = split_words(text)
    return text_words[1:] if len(text_words) > 1 and text_words[0].isdigit() else text_words


AnswerType = Literal["money", "percentage", "number", "date", "contact"]

# In order: "how much does it cost" must match money before number.
_QUESTION_PATTERNS: Mapping[AnswerType, re.Pattern[str]] = {
    "percentage": re.compile(
        r"percent|por cento|porcentag|percentual|porcentaje|pourcent|prozent|what share"
        r"|interest rate|taxa de|tasa de|\btaux\b",
        re.I,
    ),
    "money": re.compile(
        r"how much\b(?:(?!how much\b).)*?\b(?:cost|pay|paid|price|fee|worth|charge|rent|owe)"
        r"|\b(?:price|cost|fee|rent|salary|budget|amount)s? of\b"
        r"|what (?:is|was|are) the (?:(?!what (?:is|was|are) the ).)*?"
        r"\b(?:price|cost|fee|rent|salary|budget|amount)"
        r"|quanto (?:custa|custou|paga|pagou|é pago|vale)"
        r"|qual (?:é |foi )?o (?:valor|preço|custo|montante)"
        r"|cuánto (?:cuesta|costó|vale|paga)"
        r"|combien coûte|quel (?:est )?(?:le )?(?:prix|coût|montant)"
        r"|was kostet|wie ?viel kostet",
        re.I,
    ),
    "number": re.compile(
        r"how (?:many|long|far|old|big|large|high|much)|quant[oa]s?\b|cuánt[oa]s?\b|combien"
        r"|wie ?(?:viele?|lange|hoch|groß)|what number",
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
}
_MONTHS = (
    "january|february|march|april|may|june|july|august|september|october|november|december|"
    "janeiro|fevereiro|março|abril|maio|junho|julho|agosto|setembro|outubro|novembro|dezembro|"
    "enero|febrero|marzo|mayo|junio|julio|septiembre|octubre|noviembre|diciembre|"
    "janvier|février|mars|avril|mai|juin|juillet|août|septembre|octobre|novembre|décembre|"
    "januar|februar|märz|juni|juli|oktober|dezember"
)
_NUMBER = r"(?<!\d)\d++(?:[.,\u00a0 ]\d{3}){0,10}(?:[.,]\d++)?"
_VALUE_PATTERNS: Mapping[AnswerType, re.Pattern[str]] = {
    "percentage": re.compile(
        rf"{_NUMBER}\s?(?:%|percent|per cent|por cento|por ciento|pour cent|prozent)", re.I
    ),
    "money": re.compile(
        rf"(?:[$€£¥]|R\$|US\$|USD|EUR|BRL|GBP)\s?{_NUMBER}"
        r"(?:\s(?:million|billion|mil|milhões|millones|millions|Millionen))?"
        rf"|{_NUMBER}\s?(?:€|£|euros?|dollars?|reais|dólares|pounds|EUR|USD|BRL|CHF)\b",
        re.I,
    ),
    "number": re.compile(rf"(?<![\w.]){_NUMBER}(?![\w])"),
    "date": re.compile(
        r"\b\d{4}-\d{2}-\d{2}\b|\b\d{1,2}[./]\d{1,2}[./]\d{2,4}\b"
        r"|\b\d{1,2}(?:st|nd|rd|th|º)?\.? "
        rf"(?:de |of )?(?:{_MONTHS})(?:,? (?:de |del )?\d{{4}})?\b"
        rf"|\b(?:{_MONTHS}) \d{{1,2}}(?:st|nd|rd|th)?(?:, \d{{4}})?\b"
        rf"|\b(?:{_MONTHS}) (?:de |del )?\d{{4}}\b"
        r"|\b(?:1[5-9]|20)\d{2}\b",
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
    if value_span is None:
        return sentence
    start, end = value_span
    return f"{sentence[:start]}**{sentence[start:end]}**{sentence[end:]}"
