"""Printing of results to stdout and of messages and prompts to stderr."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from anabranch.process.terminal import escape_controls, get_unescaped
from schemas.errors import ConfigurationError, TransientError

SCHEMA_VERSION = 1


def print_json(body: dict[str, Any]) -> None:
    print(
        json.dumps(
            {"schema_version": SCHEMA_VERSION, **body}, ensure_ascii=False, indent=1, default=str
        ),
        flush=True,
    )


def print_json_line(body: dict[str, Any]) -> None:
    """Print one object of a stream on one line, flushed."""
    print(
        json.dumps({"schema_version": SCHEMA_VERSION, **body}, ensure_ascii=False, default=str),
        flush=True,
    )


def extract_items(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the items of a body that holds one list only, else the body as the only item."""
    lists = [value for name, value in body.items() if name != "next"]
    items = lists[0] if len(lists) == 1 else None
    return (
        items
        if isinstance(items, list) and all(isinstance(item, dict) for item in items)
        else [body]
    )


def print_next_page(after: str | None, *, quiet: bool) -> None:
    """Say on stderr how to list the next page, if there is one."""
    if after:
        print_stderr(f"more: --after {after}", quiet=quiet)


GAP = "  "
MIN_COLUMN = 6
READABLE_COLUMN = 30
"""Width below which optional columns are left out before a text is cut."""
ID_DIGITS = 8
FULL_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
SHORTENED_IDS = {
    *("document_id", "run_id", "previous_run_id", "event_id"),
    *("question_id", "experiment_id", "fact_id", "replay_id"),
}
"""Columns of ids of which commands accept the first digits."""
TIME = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d):\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?")


def print_table(
    headings: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    max_width: int | None = None,
    optional: Sequence[str] = (),
) -> None:
    """Print columns as wide as their longest cell.

    Where lines exceed `max_width`, optional columns are left out, the first one first, and others
    cut.
    """
    lines = [list(headings), *([format_cell(value) for value in row] for row in rows)]
    if max_width is not None and _measure(lines) > max_width:
        lines = _cut_lines(lines, max_width, optional)
    widths = _find_widths(lines)
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        print(GAP.join(cells).rstrip())


def _find_widths(lines: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*lines, strict=True)]


def _measure(lines: Sequence[Sequence[str]]) -> int:
    widths = _find_widths(lines)
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _cut_lines(
    lines: Sequence[Sequence[str]], max_width: int, optional: Sequence[str]
) -> list[list[str]]:
    """Shorten ids and times, then cut the widest columns, but no id that a command needs whole."""
    columns = [
        [heading, *(_shorten(cell, is_id=heading in SHORTENED_IDS) for cell in cells)]
        for heading, *cells in zip(*lines, strict=True)
    ]
    for left_out in optional:
        widths = (min(READABLE_COLUMN, max(map(len, column))) for column in columns)
        if sum(width + len(GAP) for width in widths) > max_width + len(GAP):
            columns = [column for column in columns if column[0] != left_out]
    limits = [max(map(len, column)) for column in columns]
    minima = [
        limit
        if heading.endswith("id") and any(map(FULL_ID.fullmatch, cells))
        else min(limit, ID_DIGITS if heading in SHORTENED_IDS else MIN_COLUMN)
        for (heading, *cells), limit in zip(columns, limits, strict=True)
    ]
    excess = sum(limits) + len(GAP) * (len(limits) - 1) - max_width
    while excess > 0 and limits != minima:
        widest = max(
            (number for number, limit in enumerate(limits) if limit > minima[number]),
            key=lambda number: (limits[number], number),
        )
        limits[widest] -= 1
        excess -= 1
    cut_columns = [
        [cell if len(cell) <= limit else f"{cell[: limit - 1]}…" for cell in column]
        for column, limit in zip(columns, limits, strict=True)
    ]
    return list(map(list, zip(*cut_columns, strict=True)))


def _shorten(cell: str, *, is_id: bool) -> str:
    if is_id and FULL_ID.fullmatch(cell):
        return cell[:ID_DIGITS]
    return f"{time[1]} {time[2]}" if (time := TIME.fullmatch(cell)) else cell


Column = str | tuple[str, str | Callable[[dict[str, Any]], object]]
"""The name of a field, or a heading with the name of a field or a function of the item."""


def print_items(
    items: Iterable[dict[str, Any]],
    columns: Sequence[Column],
    *,
    max_width: int | None = None,
    optional: Sequence[str] = (),
) -> None:
    fields = [(column, column) if isinstance(column, str) else column for column in columns]
    print_table(
        [heading for heading, _ in fields],
        [
            [item.get(field) if isinstance(field, str) else field(item) for _, field in fields]
            for item in items
        ],
        max_width=max_width,
        optional=optional,
    )


MIN_WIDTH = 40
EMPHASIS = re.compile(r"\*\*([^*\n]+)\*\*")
"""Marks of the answer around the value that was asked for."""


def remove_emphasis(text: str) -> str:
    return EMPHASIS.sub(r"\1", text)


def print_answer(text: str, *, no_color: bool) -> None:
    """Print the text of an answer: emphasis is bold on a terminal, and left out elsewhere."""
    if no_color or not sys.stdout.isatty() or os.environ.get("TERM") == "dumb":
        print(wrap_text(remove_emphasis(text)))
        return
    bold = EMPHASIS.sub("\x1b[1m\\1\x1b[22m", escape_controls(text))
    print(wrap_text(bold), file=get_unescaped(sys.stdout), flush=True)


def wrap_text(text: str, indent: str = "") -> str:
    """Indent the lines; on a terminal, break those that are too wide between words."""
    if not sys.stdout.isatty():
        return textwrap.indent(text, indent)
    wrapper = textwrap.TextWrapper(
        max(MIN_WIDTH, shutil.get_terminal_size().columns),
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(wrapper.fill(line) for line in text.split("\n"))


def print_stderr(text: str, *, quiet: bool = False) -> None:
    if not quiet:
        print(text, file=sys.stderr, flush=True)


def print_fields(fields: Mapping[str, object]) -> None:
    for name, value in fields.items():
        print(f"{name:18} {format_cell(value)}")


def choose_display_name(document: Mapping[str, Any]) -> str | None:
    """Return the most readable name that the document has."""
    return next(
        (
            str(document[name])
            for name in ("title", "filename", "source_uri", "external_id")
            if document.get(name)
        ),
        None,
    )


def format_stage_state(line: Mapping[str, Any]) -> str:
    """Return the state of a stage, with its progress on a long document."""
    return f"{line['state']}{_format_progress(line)}"


def format_waiting_stage(waiting: Mapping[str, Any]) -> str:
    return f"{waiting['stage']}{_format_progress(waiting)}"


def _format_progress(body: Mapping[str, Any]) -> str:
    progress = body.get("progress")
    return f" {progress['done']}/{progress['total']} {progress['unit']}" if progress else ""


def format_cell(value: object) -> str:
    """Format a JSON value without brackets, quotes, braces and empty entries."""
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case Mapping():
            return (
                ", ".join(
                    f"{name} {format_cell(entry)}"
                    for name, entry in value.items()
                    if entry not in (None, "", [], {})
                )
                or "-"
            )
        case list() | tuple():
            return ", ".join(map(format_cell, value)) or "-"
        case _:
            return to_single_line(str(value))


def to_single_line(text: str) -> str:
    """Replace line breaks and escape control characters: no title passes for a line of output."""
    # Escaped before printing, so that column widths count the escaped text.
    return escape_controls(text.replace("\n", " "))


class Declined(Exception):
    """The answer to a prompt was not yes."""


def confirm(question: str, *, yes: bool) -> None:
    """Prompt on stderr, unless `yes` was given.

    Raises Declined, and ConfigurationError at the end of stdin.
    """
    if yes:
        return
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    with _interruptible_read():
        answer = sys.stdin.readline()
    if not answer:
        print(file=sys.stderr)
        raise ConfigurationError(
            "No confirmation was given.",
            code="NOT_CONFIRMED",
            remedy="Add --yes to run without a terminal.",
        )
    if answer.strip().lower() not in ("y", "yes"):
        raise Declined


@contextmanager
def _interruptible_read() -> Iterator[None]:
    """Let Ctrl-C end a blocking read: asyncio.run() only cancels the task, which waits for it."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


CONTINUES_WHILE_RUNNING = "continues while `anabranch up` or a worker runs"


@contextmanager
def resume_hint(hint: str | Callable[[], str], *, quiet: bool = False) -> Iterator[None]:
    """Print the hint if the block is cancelled or the server becomes unreachable."""
    try:
        yield
    except (TransientError, asyncio.CancelledError):
        print_stderr(hint if isinstance(hint, str) else hint(), quiet=quiet)
        raise
