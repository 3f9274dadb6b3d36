"""What can be quoted: sentences and table rows of the contexts, each with its place."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from retrieval.answer.headings import is_name, looks_like_a_heading, marked_headings
from retrieval.pack import Context
from schemas.ports.engines import Sentences
from schemas.ports.search import ChunkView

_HEADING = re.compile(r"#{1,6}\s")
_LIST_MARK = re.compile(r"(?:[-*+•]|\d{1,3}[.)])\s+")
_DELIMITER = re.compile(r"(?=[\s:|]*+-[\s:-]*+\|)[\s:|-]*+$")
_LINE = re.compile(r"[^\n]*\n?")


@dataclass(frozen=True, slots=True)
class Quotable:
    """`text` is `chunk.text[start:end]`. Of a table row, `header` holds the column names."""

    context: Context
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
    def readable(self) -> str:
        """The words as a person reads them in an answer: line breaks closed up; of a row its cells, each after its column's name."""
        if not self.is_row:
            return " ".join(self.text.split())
        values = cells(self.text)
        names = self.header or ()
        return "; ".join(f"{name}: {value}" if name else value for name, value in zip([*names, *[""] * len(values)], values, strict=False) if value)


def quotables(contexts: Sequence[Context], sentences: Sentences) -> list[Quotable]:
    """In order of contexts and text; a text that repeats (children may overlap) is taken once a context. Headings only where a context holds nothing else."""
    found: dict[tuple[int, str], Quotable] = {}
    for context in contexts:
        said = [item for chunk in context.children for item in _said(context, chunk, sentences)]
        for item in said or [item for chunk in context.children for item in _of_chunk(context, chunk, sentences, headings=True)]:
            found.setdefault((context.n, item.readable), item)
    return list(found.values())


def _said(context: Context, chunk: ChunkView, sentences: Sentences) -> Iterator[Quotable]:
    """What is no name of something: neither the document's title nor a heading of the passage, written as a line of the text."""
    names = [chunk.title or "", *context.view.section.split(" > "), *chunk.prefix.splitlines()]
    return (item for item in _of_chunk(context, chunk, sentences) if item.is_row or not is_name(item.text, names))


def _of_chunk(context: Context, chunk: ChunkView, sentences: Sentences, *, headings: bool = False) -> Iterator[Quotable]:
    if chunk.kind == "summary":
        return  # written by the parser, not by the document's author
    header: tuple[str, ...] | None = prefix_header(chunk.prefix) if chunk.text.lstrip().startswith("|") else None
    yield from (Quotable(context, chunk, start, end) for start, end in marked_headings(chunk.text) if headings)
    for kind, start, end in blocks(chunk.text):
        if kind == "header":
            names = tuple(cells(chunk.text[start:end]))
            header = names if any(names) else None
        elif kind == "row":
            yield Quotable(context, chunk, start, end, header)
        else:
            header = None
            for left, right in () if not headings and _heads(chunk.text, start, end) else sentences.split(chunk.text[start:end]):
                yield from _trimmed(context, chunk, start + left, start + right)


def _heads(text: str, start: int, end: int) -> bool:
    """Whether the run is a line by itself, no list item, that more text follows and that reads like a heading."""
    alone = text[:start].rpartition("\n")[2].strip() == "" and bool(text[end:].strip())
    return alone and looks_like_a_heading(text[start:end])


def _trimmed(context: Context, chunk: ChunkView, start: int, end: int) -> Iterator[Quotable]:
    text = chunk.text[start:end]
    start += len(text) - len(text.lstrip())
    end -= len(text) - len(text.rstrip())
    if any(char.isalnum() for char in chunk.text[start:end]):
        yield Quotable(context, chunk, start, end)


def blocks(text: str) -> Iterator[tuple[str, int, int]]:
    """(`prose`, `row` or `header`, start, end): runs of prose lines, and each line of a table. Headings, blank lines and table rules are left out; a list item begins a new run, after its mark."""
    lines = [(match.start(), match.group()) for match in _LINE.finditer(text) if match.group()]
    begun: int | None = None
    for number, (start, line) in enumerate(lines):
        bare = line.strip()
        item = _LIST_MARK.match(line.lstrip())
        breaks = not bare or bare.startswith("|") or _HEADING.match(bare) or item
        if begun is not None and breaks:
            yield "prose", begun, start
            begun = None
        if bare.startswith("|"):
            if not _DELIMITER.match(bare):
                left = start + len(line) - len(line.lstrip())
                yield ("header" if _rules(lines, number + 1) else "row"), left, left + len(bare)
        elif item:
            begun = start + len(line) - len(line.lstrip()) + item.end()
        elif bare and not _HEADING.match(bare) and begun is None:
            begun = start
    if begun is not None:
        yield "prose", begun, len(text)


def _rules(lines: Sequence[tuple[int, str]], number: int) -> bool:
    return number < len(lines) and lines[number][1].strip().startswith("|") and bool(_DELIMITER.match(lines[number][1].strip()))


def prefix_header(prefix: str) -> tuple[str, ...] | None:
    """Column names of a table that was cut: its header row travels in the chunk's prefix."""
    rows = [line for line in prefix.splitlines() if line.strip().startswith("|") and not _DELIMITER.match(line.strip())]
    return tuple(cells(rows[-1])) if rows else None


def cells(row: str) -> list[str]:
    """Texts of a Markdown table row's cells; an escaped bar belongs to its cell."""
    parts = re.split(r"(?<!\\)\|", row.strip().removeprefix("|").removesuffix("|"))
    return [part.replace("\\|", "|").strip() for part in parts]
