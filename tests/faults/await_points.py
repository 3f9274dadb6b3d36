"""Observe from the event loop every await of a stage between reading an event and acknowledging it.

An await point is `stage|place|side`: `place` is our line that waits and what it waits for, `side`
whether the request is out (`asked`) or the response has just arrived (`answered`). Its site is the
line alone, `file:line`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streams.partition_sink import PartitionSink
from streams.runner import StageRunner

ROOT = Path(__file__).parents[2]
SOURCE_FOLDERS = tuple(
    f"{ROOT / room}/"
    for room in ("streams", "sql", "processors", "engines", "services", "anabranch")
)
IDLE = PartitionSink._wait_until.__qualname__
"""Waits for something to do, with nothing in hand."""
OnAwaitPoint = Callable[[str], None]


@dataclass(frozen=True)
class AwaitCoverage:
    """The await points that a run came by, and those at which a worker was killed."""

    seen: frozenset[str]
    struck: frozenset[str]

    @property
    def sites_seen(self) -> set[str]:
        return get_sites(self.seen | self.struck)

    @property
    def sites_struck(self) -> set[str]:
        return get_sites(self.struck)

    @property
    def sites_never_struck(self) -> list[str]:
        return sorted(self.sites_seen - self.sites_struck)


def get_sites(await_points: Iterable[str]) -> set[str]:
    """Return the `file:line` of each await point."""
    return {await_point.split("|")[1].split(" ")[0] for await_point in await_points}


class TracedCoroutine(Coroutine[Any, Any, Any]):
    """A coroutine whose waits are reported."""

    def __init__(
        self, inner: Coroutine[Any, Any, Any], stage: str, on_await_point: OnAwaitPoint
    ) -> None:
        self._inner, self._stage, self._on_await_point = inner, stage, on_await_point
        self._await_point: str | None = None

    def send(self, value: Any) -> Any:
        self._report("answered")
        waited_for = self._inner.send(value)
        self._await_point = find_await_point(self._inner)
        self._report("asked")
        return waited_for

    def throw(self, *error: Any) -> Any:
        return self._inner.throw(*error)

    def close(self) -> None:
        self._inner.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        raise AssertionError("a task runs it")

    def _report(self, side: str) -> None:
        if self._await_point is not None:
            self._on_await_point(f"{self._stage}|{self._await_point}|{side}")


def trace_await_points(loop: asyncio.AbstractEventLoop, on_await_point: OnAwaitPoint) -> None:
    """Every task in which a stage handles its events reports its waits from now on."""

    def create_task(
        loop: asyncio.AbstractEventLoop, coroutine: Any, **how: Any
    ) -> asyncio.Task[Any]:
        stage = find_stage(coroutine)
        return asyncio.Task(
            coroutine if stage is None else TracedCoroutine(coroutine, stage, on_await_point),
            loop=loop,
            **how,
        )

    loop.set_task_factory(create_task)


def find_stage(coroutine: Any) -> str | None:
    """Of a task that a partition or its runner starts."""
    frame = getattr(coroutine, "cr_frame", None)
    owner = frame.f_locals.get("self") if frame is not None else None
    runner = owner.runner if isinstance(owner, PartitionSink) else owner
    return runner.stage.name if isinstance(runner, StageRunner) else None


def find_await_point(coroutine: Any) -> str | None:
    """Where it waits; None where it only waits for work."""
    line, names, awaitable = None, [], coroutine
    while (frame := _get_frame(awaitable)) is not None:
        if awaitable.__qualname__ == IDLE:
            return None
        if frame.f_code.co_filename.startswith(SOURCE_FOLDERS):
            line, names = f"{Path(frame.f_code.co_filename).relative_to(ROOT)}:{frame.f_lineno}", []
        else:
            names.append(awaitable.__qualname__)
        awaitable = _get_awaited(awaitable)
    return line and " ".join([line, *dict.fromkeys(names[:1] + names[-1:])])


def _get_frame(awaitable: Any) -> Any:
    return next(
        (
            found
            for name in ("cr_frame", "gi_frame", "ag_frame")
            if (found := getattr(awaitable, name, None)) is not None
        ),
        None,
    )


def _get_awaited(awaitable: Any) -> Any:
    return next(
        (
            found
            for name in ("cr_await", "gi_yieldfrom", "ag_await")
            if (found := getattr(awaitable, name, None)) is not None
        ),
        None,
    )
