"""Printing of results to stdout and of messages and prompts to stderr."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from anabranch.process.terminal import escape_controls
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


def print_table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print columns as wide as their longest cell, without colors, for pipes."""
    cells = [[format_cell(value) for value in row] for row in rows]
    widths = [
        max(len(line[column]) for line in [list(headings), *cells])
        for column in range(len(headings))
    ]
    for line in [list(headings), *cells]:
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        )


Column = str | tuple[str, str | Callable[[dict[str, Any]], object]]
"""The name of a field, or a heading with the name of a field or a function of the item."""


def print_items(items: Iterable[dict[str, Any]], columns: Sequence[Column]) -> None:
    fields = [(column, column) if isinstance(column, str) else column for column in columns]
    print_table(
        [heading for heading, _ in fields],
        [
            [item.get(field) if isinstance(field, str) else field(item) for _, field in fields]
            for item in items
        ],
    )


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


def confirm(question: str) -> bool:
    """Prompt on stderr and return whether the answer is yes.

    Raises ConfigurationError at the end of stdin.
    """
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
    return answer.strip().lower() in ("y", "yes")


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
def resume_hint(format_hint: Callable[[], str], *, quiet: bool = False) -> Iterator[None]:
    """Print the hint if the block is cancelled or the server becomes unreachable."""
    try:
        yield
    except (TransientError, asyncio.CancelledError):
        print_stderr(format_hint(), quiet=quiet)
        raise
