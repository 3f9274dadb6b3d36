"""Observe from the event loop every await of a stage between reading an event and acknowledging it.

An await point is `stage|place|side`. `place` is our innermost line that awaits, and what it awaits;
`side` is `sent` (the request is out) or `received` (the response has just arrived). The site of a
point is the line alone, `file:line`.
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
    f"{ROOT / folder}/"
    for folder in ("streams", "sql", "processors", "engines", "services", "anabranch")
)
IDLE = PartitionSink._wait_until.__qualname__
"""Waits for work, with no event in hand."""
OnAwaitPoint = Callable[[str], None]


@dataclass(frozen=True)
class AwaitCoverage:
    """The await points that a run reached, and those at which a worker was killed."""

    reached: frozenset[str]
    struck: frozenset[str]

    @property
    def sites_reached(self) -> set[str]:
        return get_sites(self.reached)

    @property
    def sites_struck(self) -> set[str]:
        return get_sites(self.struck)

    @property
    def sites_never_struck(self) -> list[str]:
        return sorted(self.sites_reached - self.sites_struck)


def get_stage(await_point: str) -> str:
    return await_point.split("|")[0]


def get_site(await_point: str) -> str:
    return await_point.split("|")[1].split(" ")[0]


def get_sites(await_points: Iterable[str]) -> set[str]:
    return {get_site(await_point) for await_point in await_points}


class TracedCoroutine(Coroutine[Any, Any, Any]):
    """A coroutine that reports its awaits."""

    def __init__(
        self, inner: Coroutine[Any, Any, Any], stage: str, on_await_point: OnAwaitPoint
    ) -> None:
        self.stage = stage
        self._inner, self._on_await_point = inner, on_await_point
        self._await_place: str | None = None

    def send(self, value: Any) -> Any:
        self._report("received")
        awaited = self._inner.send(value)
        self._await_place = find_await_place(self._inner)
        self._report("sent")
        return awaited

    def throw(self, *error: Any) -> Any:
        return self._inner.throw(*error)

    def close(self) -> None:
        self._inner.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        raise AssertionError("a task runs it")

    def _report(self, side: str) -> None:
        if self._await_place is not None:
            self._on_await_point(f"{self.stage}|{self._await_place}|{side}")


def trace_await_points(loop: asyncio.AbstractEventLoop, on_await_point: OnAwaitPoint) -> None:
    """Report the awaits of every task in which a stage handles events, and of the tasks that those
    tasks create.
    """

    def create_task(
        loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any
    ) -> asyncio.Task[Any]:
        stage = find_stage(coroutine) or get_current_stage(loop)
        return asyncio.Task(
            coroutine if stage is None else TracedCoroutine(coroutine, stage, on_await_point),
            loop=loop,
            **options,
        )

    loop.set_task_factory(create_task)


def find_stage(coroutine: Any) -> str | None:
    """Return the stage of a task that a partition or its runner starts."""
    frame = getattr(coroutine, "cr_frame", None)
    owner = frame.f_locals.get("self") if frame is not None else None
    runner = owner.runner if isinstance(owner, PartitionSink) else owner
    return runner.stage.name if isinstance(runner, StageRunner) else None


def get_current_stage(loop: asyncio.AbstractEventLoop) -> str | None:
    """Return the stage of the task that is running, or None outside of traced tasks."""
    task = asyncio.current_task(loop)
    coroutine = task.get_coro() if task is not None else None
    return coroutine.stage if isinstance(coroutine, TracedCoroutine) else None


def find_await_place(coroutine: Any) -> str | None:
    """Return where a suspended coroutine waits, or None if it waits for work or for foreign code
    only.
    """
    line, names, awaitable = None, [], coroutine
    while (frame := _find_attribute(awaitable, "cr_frame", "gi_frame", "ag_frame")) is not None:
        if awaitable.__qualname__ == IDLE:
            return None
        if frame.f_code.co_filename.startswith(SOURCE_FOLDERS):
            line, names = f"{Path(frame.f_code.co_filename).relative_to(ROOT)}:{frame.f_lineno}", []
        else:
            names.append(awaitable.__qualname__)
        awaitable = _find_attribute(awaitable, "cr_await", "gi_yieldfrom", "ag_await")
    return line and " ".join([line, *dict.fromkeys(names[:1] + names[-1:])])


def _find_attribute(awaitable: Any, *names: str) -> Any:
    """Return the first attribute that is set; coroutines and generators name theirs differently."""
    found = (getattr(awaitable, name, None) for name in names)
    return next((value for value in found if value is not None), None)
