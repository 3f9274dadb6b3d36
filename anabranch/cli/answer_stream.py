"""An answer as it comes about."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

from anabranch.cli.output import print_json_line, print_stderr
from schemas.errors import TransientError

OnStreamEvent = Callable[[str, dict[str, Any]], None]
"""Is told each event, by name and data."""


async def read_answer(events: AsyncIterator[tuple[str, dict[str, Any]]], on_event: OnStreamEvent) -> dict[str, Any]:
    """The last event. Raises TransientError where the stream ends before it."""
    async for name, data in events:
        on_event(name, data)
        if name == "answer":
            return data
    raise TransientError("the stream ended before the answer", code="SERVER_UNREACHABLE", remedy="Ask again; `anabranch doctor` says how the server does.")


def print_event_line(name: str, data: dict[str, Any]) -> None:
    print_json_line({"event": name, **data})


def make_progress_printer(*, quiet: bool) -> OnStreamEvent:
    """Words that are not proven yet are talk; each new draft begins on a line of its own."""
    drafts: list[int] = []

    def print_event(name: str, data: dict[str, Any]) -> None:
        if quiet:
            return
        if name == "step" and data["ms"] is not None:
            print_stderr(f"{data['name']} {data['ms']:.0f} ms")
        elif name == "delta":
            if data["draft"] not in drafts:
                drafts.append(data["draft"])
                print_stderr("draft, not proven yet:" if len(drafts) == 1 else "\nthat draft does not hold; another one:")
            print(data["text"], end="", file=sys.stderr, flush=True)
        elif name == "answer" and drafts:
            print_stderr("\n")

    return print_event
