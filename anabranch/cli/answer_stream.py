"""An answer as it comes about."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

from anabranch.cli.output import print_line, say
from schemas.errors import TransientError

Watch = Callable[[str, dict[str, Any]], None]
"""Is told each event, by name and data."""


async def answer_of(events: AsyncIterator[tuple[str, dict[str, Any]]], watch: Watch) -> dict[str, Any]:
    """The last event. Raises TransientError where the stream ends before it."""
    async for name, data in events:
        watch(name, data)
        if name == "answer":
            return data
    raise TransientError("the stream ended before the answer", code="SERVER_UNREACHABLE", remedy="Ask again; `anabranch doctor` says how the server does.")


def as_lines(name: str, data: dict[str, Any]) -> None:
    print_line({"event": name, **data})


def as_talk(*, quiet: bool) -> Watch:
    """Words that are not proven yet are talk; each new draft begins on a line of its own."""
    drafts: list[int] = []

    def watch(name: str, data: dict[str, Any]) -> None:
        if quiet:
            return
        if name == "step" and data["ms"] is not None:
            say(f"{data['name']} {data['ms']:.0f} ms")
        elif name == "delta":
            if data["draft"] not in drafts:
                drafts.append(data["draft"])
                say("draft, not proven yet:" if len(drafts) == 1 else "\nthat draft does not hold; another one:")
            print(data["text"], end="", file=sys.stderr, flush=True)
        elif name == "answer" and drafts:
            say("\n")

    return watch
