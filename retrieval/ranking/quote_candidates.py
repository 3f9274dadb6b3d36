"""Extract quote candidates: sentences and table rows of the contexts, with their positions.

Headings are no answers however many words they share with the query. The chunker marks its own;
others are plain lines, from scans and plain texts, recognized by form.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from engines.language import find_sentences
from retrieval.question.answer_values import AnswerType, find_value
from retrieval.question.words import blank_struck, extract_word_keys, split_words
from retrieval.ranking.passages import SOURCES_PER_QUOTE, ContextPassage
from retrieval.redaction import Passage, Redactor
from schemas.ports.search import ChunkView
from schemas.values import format_embedding_text

_HEADING = re.compile(r"#{1,6}\s")
_LIST_MARK = re.compile(r"(?:[-*+•]|\d{1,3}[.)])\s+")
# Possessive quantifiers keep matching linear on hostile lines.
_TABLE_RULE = re.compile(r"(?=[\s:|]*+-[\s:-]*+\|)[\s:|-]*+$")
_UNDERLINE = re.compile(r"(?:={3,}|-{3,}|_{3,}|~{3,}|\*{3,})$")
_LINE = re.compile(r"[^\n]*\n?")
_CELL_BORDER = re.compile(r"(?<!\\)\|")
_CELL_SEPARATOR = "; "


@dataclass(frozen=True, slots=True)
class QuoteCandidate:
    """A span of a chunk: `text` is `chunk.text[start:end]`.

    For a table row, `header` holds the column names, and `header_span` their place in the chunk, or
    before it in the chunk's prefix, where the header of a split table stands. `lead_in` is the
    place of the line that introduces the text: its heading, the question that it answers, or the
    beginning of its list.
    """

    context: ContextPassage
    chunk: ChunkView
    start: int
    end: int
    header: tuple[str, ...] | None = None
    header_span: tuple[int, int] | None = None
    lead_in: tuple[int, int] | None = None

    @property
    def text(self) -> str:
        return self.chunk.text[self.start : self.end]

    @property
    def is_verbatim(self) -> bool:
        """True when the stored passage has this text at its position."""
        view, chunk = self.context.view, self.chunk
        start, end = chunk.char_start + self.start, chunk.char_start + self.end
        # Offsets fit only while text and range have the same length: never cite a shifted quote.
        return chunk.char_start + len(chunk.text) == chunk.char_end and is_verbatim(
            self.text, start, end, view.text, view.char_start
        )

    @property
    def section(self) -> str:
        """The heading path at its position."""
        view = self.context.view
        return resolve_section(
            view.text, view.section, self.chunk.char_start + self.start - view.char_start
        )

    @property
    def lead_in_text(self) -> str:
        return self.chunk.text[slice(*self.lead_in)] if self.lead_in else ""

    @property
    def is_row(self) -> bool:
        return self.text.lstrip().startswith("|")

    @property
    def readable_text(self) -> str:
        """The text without line breaks; for a table row, its cells, each after its column name."""
        if not self.is_row:
            return " ".join(self.text.split())
        return format_cells(self.header or (), self.cells)

    @property
    def cells(self) -> list[str]:
        return split_cells(self.text)

    @property
    def raw_values(self) -> dict[int, str]:
        """The stored values of a table row, by column, that its cells show in another form."""
        row_start, text = self.chunk.char_start + self.start, self.text
        borders = [match.start() for match in _CELL_BORDER.finditer(text)]
        return {
            bisect_right(borders, place) - 1: cell["raw_value"]
            for span in self.chunk.spans
            for cell in span.get("raw_cells") or ()
            if 0 <= (place := cell["char_start"] - row_start) < len(text)
        }

    @property
    def raw_places(self) -> list[tuple[int, int, str]]:
        """The places in `readable_text` of the cells of `raw_values`, with these."""
        raw_values, places, start = self.raw_values, [], 0
        for column, label, value in _label_cells(self.header or (), self.cells):
            start += len(label)
            if column in raw_values:
                places.append((start, start + len(value), raw_values[column]))
            start += len(value) + len(_CELL_SEPARATOR)
        return places


def is_verbatim(quote: str, start: int, end: int, text: str, text_start: int) -> bool:
    """True when the document's characters `[start, end)` equal the quote. `text` begins at
    `text_start`.
    """
    return (
        bool(quote) and start >= text_start and text[start - text_start : end - text_start] == quote
    )


def format_cells(names: Sequence[str], values: Sequence[str]) -> str:
    """Return the cells of a table row, each after its column name."""
    return _CELL_SEPARATOR.join(label + value for _, label, value in _label_cells(names, values))


def _label_cells(names: Sequence[str], values: Sequence[str]) -> Iterator[tuple[int, str, str]]:
    """Yield the column, label and text of each cell that is not empty."""
    for column, (name, value) in enumerate(
        zip([*names, *[""] * len(values)], values, strict=False)
    ):
        if value:
            yield column, f"{name}: " if name else "", value


def learn_divided_quotes(redactor: Redactor, candidates: Sequence[QuoteCandidate]) -> None:
    """Let the redactor know the identifiers that the end of a sentence or row divides."""
    verbatim = [candidate for candidate in candidates if candidate.is_verbatim]
    chunks = {candidate.chunk.chunk_id: candidate.chunk for candidate in verbatim}
    redactor.learn_divided(
        [Passage(chunk.document_id, chunk.char_start, chunk.text) for chunk in chunks.values()],
        [
            Passage(item.chunk.document_id, item.chunk.char_start + item.start, item.text)
            for item in verbatim
        ],
    )


def extract_quote_candidates(
    contexts: Sequence[ContextPassage], question: str = ""
) -> list[QuoteCandidate]:
    """Return candidates in order of contexts and text, without repeated texts.

    Children may overlap. Headings are included only for contexts that contain nothing else. A line
    above other text that only form shows to be a heading is content where it says more than the
    question.
    """
    question_keys = extract_word_keys(question)
    candidates: dict[tuple[int, str], QuoteCandidate] = {}
    for context in contexts:
        context_candidates = [
            candidate
            for chunk in context.children
            for candidate in _exclude_names(context, chunk, question_keys)
        ]
        for candidate in context_candidates or [
            candidate
            for chunk in context.children
            for candidate in _split_chunk(context, chunk, include_headings=True)
        ]:
            candidates.setdefault((context.n, candidate.readable_text), candidate)
    return list(candidates.values())


def _exclude_names(
    context: ContextPassage, chunk: ChunkView, question_keys: set[str]
) -> Iterator[QuoteCandidate]:
    """Drop candidates that merely repeat the document's title or a heading of the passage."""
    names = [chunk.title or "", *context.view.section.split(" > "), *chunk.prefix.splitlines()]
    return (
        candidate
        for candidate in _split_chunk(context, chunk, question_keys)
        if candidate.is_row or not is_heading_name(candidate.text, names)
    )


def _split_chunk(
    context: ContextPassage,
    chunk: ChunkView,
    question_keys: Collection[str] = (),
    *,
    include_headings: bool = False,
) -> Iterator[QuoteCandidate]:
    if chunk.kind == "summary":
        return  # written by the parser, not by the document's author
    header: tuple[str, ...] | None = None
    header_span: tuple[int, int] | None = None
    if chunk.text.lstrip().startswith("|"):
        header, header_span = parse_prefix_header(chunk.prefix)
        if header is not None and not any(header):
            header, header_span = _find_continued_header(context, chunk, 0, len(header))
    heading: tuple[int, int] | None = None
    list_lead_in: tuple[int, int] | None = None
    yield from (
        QuoteCandidate(context, chunk, start, end)
        for start, end in find_marked_headings(chunk.text)
        if include_headings
    )
    for kind, start, end in split_blocks(chunk.text):
        if kind == "header":
            names = tuple(split_cells(chunk.text[start:end]))
            if any(names):
                header, header_span = names, (start, end)
            elif len(header or ()) != len(names):
                # A table that continues on the next page or column has an empty header.
                header, header_span = _find_continued_header(context, chunk, start, len(names))
            continue
        if kind == "row":
            yield QuoteCandidate(context, chunk, start, end, header, header_span, heading)
            continue
        # Text ends the table: the next row belongs to another one.
        header = header_span = None
        if kind == "heading" or _is_heading_line(chunk.text, start, end):
            heading, list_lead_in = (start, end), None
            is_content = kind != "heading" and _says_more(chunk.text[start:end], question_keys)
            if kind == "heading" or not (include_headings or is_content):
                continue
        spans = [
            (start + sentence_start, start + sentence_end)
            for sentence_start, sentence_end in find_sentences(chunk.text[start:end])
        ]
        if (chunk.language or "").startswith("de"):
            spans = _join_ordinals(chunk.text, spans)
        if kind == "prose":
            list_lead_in = None
        question: tuple[int, int] | None = None
        for span in spans:
            yield from _trim_candidate(context, chunk, span, question or list_lead_in or heading)
            if chunk.text[slice(*span)].rstrip().endswith("?"):
                question = span
        if kind == "prose" and chunk.text[:end].rstrip().endswith(":"):
            list_lead_in = spans[-1]


def _find_continued_header(
    context: ContextPassage, chunk: ChunkView, start: int, n_columns: int
) -> tuple[tuple[str, ...] | None, tuple[int, int] | None]:
    """Return the header of the last table before `start` in the passage, if it has as many columns,
    and its place relative to the chunk's text.
    """
    offset = chunk.char_start - context.view.char_start
    preceding = context.view.text[: max(0, offset + start)]
    headers = [
        (names, (header_start - offset, header_end - offset))
        for kind, header_start, header_end in split_blocks(preceding)
        if kind == "header" and any(names := tuple(split_cells(preceding[header_start:header_end])))
    ]
    return headers[-1] if headers and len(headers[-1][0]) == n_columns else (None, None)


# "am 31. März", "im 2. Quartal": behind these words a number with a dot is an ordinal.
_GERMAN_ORDINAL = re.compile(
    r"\b(?:am|im|der|des|die|das|dem|den|zum|zur|vom|bis|ab|seit|jede[mnrs]?) \d{1,2}\.\s*$", re.I
)


def _join_ordinals(text: str, spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join the sentences that a German ordinal before a noun, which has a capital, separates."""
    joined: list[tuple[int, int]] = []
    for start, end in spans:
        # The end of the sentence decides, however long it is.
        if joined and _GERMAN_ORDINAL.search(text[max(joined[-1][0], start - 20) : start]):
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((start, end))
    return joined


def _is_heading_line(text: str, start: int, end: int) -> bool:
    """True for a line by itself, no list item, that reads like a heading and has text below it."""
    is_single_line = text[:start].rpartition("\n")[2].strip() == "" and bool(text[end:].strip())
    return is_single_line and is_heading_like(text[start:end])


_BOLD_LINE = re.compile(r"\s*(\*\*|__)(?=\S).*\S\1\s*")


def _says_more(line: str, question_keys: Collection[str]) -> bool:
    """Tell whether a line that is not marked as a heading says anything beyond the question."""
    return not _BOLD_LINE.fullmatch(line) and bool(extract_word_keys(line) - set(question_keys))


def _trim_candidate(
    context: ContextPassage,
    chunk: ChunkView,
    span: tuple[int, int],
    lead_in: tuple[int, int] | None,
) -> Iterator[QuoteCandidate]:
    start, end = span
    text = chunk.text[start:end]
    start += len(text) - len(text.lstrip())
    end -= len(text) - len(text.rstrip())
    if any(char.isalnum() for char in blank_struck(chunk.text[start:end])):
        yield QuoteCandidate(context, chunk, start, end, lead_in=lead_in)


def find_equal_quotes(
    quote: QuoteCandidate,
    candidates: Sequence[QuoteCandidate],
    limit: int | None = SOURCES_PER_QUOTE,
) -> list[QuoteCandidate]:
    """Return the quote, and one candidate of each other document with this text: `limit` in all."""
    text = normalize_quote(quote.readable_text)
    by_document = {quote.chunk.document_id: quote}
    for candidate in candidates:
        if normalize_quote(candidate.readable_text) == text:
            by_document.setdefault(candidate.chunk.document_id, candidate)
    for passage in quote.context.duplicates:
        (chunk,) = passage.children
        if (start := chunk.text.find(quote.text)) >= 0:
            candidate = replace(
                quote, context=passage, chunk=chunk, start=start, end=start + len(quote.text)
            )
            by_document.setdefault(chunk.document_id, candidate)
    return list(by_document.values())[:limit]


def normalize_quote(text: str) -> str:
    """Return the text as repeated sentences are compared."""
    return text.casefold().strip(" .;")


def join_next(candidate: QuoteCandidate, following: QuoteCandidate) -> QuoteCandidate | None:
    """Return both sentences as one quote, or None unless they follow each other in a paragraph."""
    between = candidate.chunk.text[candidate.end : following.start]
    if (
        candidate.chunk.chunk_id != following.chunk.chunk_id
        or candidate.is_row
        or following.is_row
        or following.start < candidate.end
        or between.strip()
        or "\n\n" in between
    ):
        return None
    return replace(candidate, end=following.end)


_SENTENCE_END = re.compile(r"[.!?]\s+(?=[^a-z\s])|\n\s*")


def find_sentence(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the place of the sentence or line around `[start, end)`."""
    ends = [match.end() for match in _SENTENCE_END.finditer(text)]
    sentence_start = max((place for place in ends if place <= start), default=0)
    sentence_end = min((place for place in ends if place >= end), default=len(text))
    return sentence_start, sentence_start + len(text[sentence_start:sentence_end].rstrip())


def split_blocks(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield (kind, start, end) of runs of text and of each heading and line of a table.

    Kinds are `prose`, `item` (of a list, after its mark), `heading`, `header` and `row`. Blank
    lines, table rules and underlines are skipped.
    """
    lines = [(match.start(), match.group()) for match in _LINE.finditer(text) if match.group()]
    kind, run_start = "prose", None
    for number, (start, line) in enumerate(lines):
        stripped = line.strip()
        list_mark = _LIST_MARK.match(line.lstrip())
        is_underline = bool(_UNDERLINE.match(stripped))
        ends_run = (
            not stripped
            or stripped.startswith("|")
            or is_underline
            or _HEADING.match(stripped)
            or list_mark
        )
        if run_start is not None and ends_run:
            # One line that is underlined is a heading (Markdown's setext, also in plain text).
            is_heading = is_underline and run_start == lines[number - 1][0]
            yield "heading" if is_heading else kind, run_start, start
            run_start = None
        if is_underline:
            continue
        if stripped.startswith("|"):
            if not _TABLE_RULE.match(stripped):
                row_start = start + len(line) - len(line.lstrip())
                yield (
                    ("header" if _is_table_rule(lines, number + 1) else "row"),
                    row_start,
                    row_start + len(stripped),
                )
        elif list_mark:
            kind, run_start = "item", start + len(line) - len(line.lstrip()) + list_mark.end()
        elif stripped and (heading := MARKDOWN_HEADING.match(line)):
            yield "heading", start + heading.start("words"), start + heading.end("words")
        elif stripped and run_start is None:
            kind, run_start = "prose", start
    if run_start is not None:
        yield kind, run_start, len(text)


def _is_table_rule(lines: Sequence[tuple[int, str]], line_number: int) -> bool:
    return (
        line_number < len(lines)
        and lines[line_number][1].strip().startswith("|")
        and bool(_TABLE_RULE.match(lines[line_number][1].strip()))
    )


def parse_prefix_header(prefix: str) -> tuple[tuple[str, ...] | None, tuple[int, int] | None]:
    """Return the column names of a split table, whose header row is in the chunk's prefix, and
    their place relative to the chunk's text.
    """
    offset = -len(format_embedding_text(prefix, ""))
    rows = [
        (offset + match.start(), match.group())
        for match in re.finditer(r"[^\n]+", prefix)
        if match.group().strip().startswith("|") and not _TABLE_RULE.match(match.group().strip())
    ]
    if not rows:
        return None, None
    start, row = rows[-1]
    return tuple(split_cells(row)), (start, start + len(row))


def split_cells(row: str) -> list[str]:
    """Return the cell texts of a Markdown table row; escaped bars do not separate cells."""
    parts = _CELL_BORDER.split(row.strip().removeprefix("|").removesuffix("|"))
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
