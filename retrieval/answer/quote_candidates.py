"""Extract quote candidates: sentences and table rows of the contexts, with their positions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from retrieval.answer.headings import find_marked_headings, is_heading_like, is_heading_name
from retrieval.context_packing import ContextPassage
from schemas.ports.engines import SentenceSplitter
from schemas.ports.search import ChunkView

_HEADING = re.compile(r"#{1,6}\s")
_LIST_MARK = re.compile(r"(?:[-*+•]|\d{1,3}[.)])\s+")
_TABLE_RULE = re.compile(r"(?=[\s:|]*+-[\s:-]*+\|)[\s:|-]*+$")
_LINE = re.compile(r"[^\n]*\n?")


@dataclass(frozen=True, slots=True)
class QuoteCandidate:
    """A span of a chunk: `text` is `chunk.text[start:end]`.

    For a table row, `header` holds the column names.
    """

    context: ContextPassage
    chunk: ChunkView
    start: int
    end: int
    header: tuple[str, ...] | None = None

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
    """Return candidates in order of contexts and text, without repeated texts (children may overlap).

    Headings are included only for contexts that contain nothing else.
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
    yield from (
        QuoteCandidate(context, chunk, start, end)
        for start, end in find_marked_headings(chunk.text)
        if include_headings
    )
    for kind, start, end in split_blocks(chunk.text):
        if kind == "header":
            names = tuple(split_cells(chunk.text[start:end]))
            header = names if any(names) else None
        elif kind == "row":
            yield QuoteCandidate(context, chunk, start, end, header)
        else:
            header = None
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
    """Yield (`prose`, `row` or `header`, start, end): runs of prose lines, and each line of a table.

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
