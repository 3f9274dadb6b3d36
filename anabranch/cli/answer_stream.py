"""Printing of a streamed answer."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

from anabranch.cli.output import print_json_line, print_stderr
from schemas.errors import TransientError

OnStreamEvent = Callable[[str, dict[str, Any]], None]
"""Callback for each server-sent event, with its name and data."""


async def read_answer(
    events: AsyncIterator[tuple[str, dict[str, Any]]], on_event: OnStreamEvent
) -> dict[str, Any]:
    """Return the data of the `answer` event. Raises TransientError if the stream ends without one."""
    async for name, data in events:
        on_event(name, data)
        if name == "answer":
            return data
    raise TransientError(
        "The server closed the stream before the answer.",
        code="SERVER_UNREACHABLE",
        remedy="Retry; check the server with `anabranch doctor`.",
    )


def print_event_line(name: str, data: dict[str, Any]) -> None:
    print_json_line({"event": name, **data})


def make_progress_printer(*, quiet: bool) -> OnStreamEvent:
    """Return a callback that prints progress and drafts to stderr, since drafts are not verified yet."""
    drafts: list[int] = []

    def print_event(name: str, data: dict[str, Any]) -> None:
        if quiet:
            return
        if name == "step" and data["ms"] is not None:
            print_stderr(f"{data['name']} {data['ms']:.0f} ms")
        elif name == "delta":
            if data["draft"] not in drafts:
                drafts.append(data["draft"])
                print_stderr(
                    "draft, not verified yet:"
                    if len(drafts) == 1
                    else "\ndraft rejected; next draft:"
                )
            print(data["text"], end="", file=sys.stderr, flush=True)
        elif name == "answer" and drafts:
            print_stderr("\n")

    return print_event
