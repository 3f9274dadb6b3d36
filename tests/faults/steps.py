"""Every await of a stage between reading an event and acknowledging it, seen from the event loop: the place to die at.

A crossing is `stage|place|side`: `place` is the line of ours that waits and what it waits for, `side` whether its answer is out (`asked`) or has just come
(`answered`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from pathlib import Path
from typing import Any

from streams.partition import PartitionSink
from streams.runner import Runner

ROOT = Path(__file__).parents[2]
OURS = tuple(f"{ROOT / room}/" for room in ("streams", "sql", "processors", "engines", "anabranch"))
IDLE = "PartitionSink._until"
"""Waits for something to do, with nothing in hand."""
Crossed = Callable[[str], None]


class Stepped(Coroutine[Any, Any, Any]):
    """A coroutine whose waits are reported."""

    def __init__(self, inner: Coroutine[Any, Any, Any], stage: str, crossed: Crossed) -> None:
        self._inner, self._stage, self._crossed = inner, stage, crossed
        self._place: str | None = None

    def send(self, value: Any) -> Any:
        self._report("answered")
        waited_for = self._inner.send(value)
        self._place = place(self._inner)
        self._report("asked")
        return waited_for

    def throw(self, *error: Any) -> Any:
        return self._inner.throw(*error)

    def close(self) -> None:
        self._inner.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        raise AssertionError("a task runs it")

    def _report(self, side: str) -> None:
        if self._place is not None:
            self._crossed(f"{self._stage}|{self._place}|{side}")


def watch_steps(loop: asyncio.AbstractEventLoop, crossed: Crossed) -> None:
    """Every task in which a stage handles its events reports its waits from now on."""

    def made(loop: asyncio.AbstractEventLoop, coroutine: Any, **how: Any) -> asyncio.Task[Any]:
        stage = stage_of(coroutine)
        return asyncio.Task(coroutine if stage is None else Stepped(coroutine, stage, crossed), loop=loop, **how)

    loop.set_task_factory(made)


def stage_of(coroutine: Any) -> str | None:
    """Of a task that a partition or its runner starts."""
    frame = getattr(coroutine, "cr_frame", None)
    owner = frame.f_locals.get("self") if frame is not None else None
    runner = owner.runner if isinstance(owner, PartitionSink) else owner
    return runner.stage.name if isinstance(runner, Runner) else None


def place(coroutine: Any) -> str | None:
    """Where it waits; None where it only waits for work."""
    line, names, at = None, [], coroutine
    while (frame := _frame(at)) is not None:
        if at.__qualname__ == IDLE:
            return None
        if frame.f_code.co_filename.startswith(OURS):
            line, names = f"{Path(frame.f_code.co_filename).relative_to(ROOT)}:{frame.f_lineno}", []
        else:
            names.append(at.__qualname__)
        at = _awaited(at)
    return line and " ".join([line, *dict.fromkeys(names[:1] + names[-1:])])


def _frame(at: Any) -> Any:
    return next((found for name in ("cr_frame", "gi_frame", "ag_frame") if (found := getattr(at, name, None)) is not None), None)


def _awaited(at: Any) -> Any:
    return next((found for name in ("cr_await", "gi_yieldfrom", "ag_await") if (found := getattr(at, name, None)) is not None), None)
