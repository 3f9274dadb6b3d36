"""Poll until a condition holds, and fail with the last value seen."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

T = TypeVar("T")
STALL_TIMEOUT_S = 90.0
MIN_POLL_S, MAX_POLL_S = 0.01, 0.25
"""A poll of the API takes 20 ms of CPU, which the work that it waits for needs."""


class StallDeadline:
    """Fail once the observed value has not changed for `stall_s`.

    A limit on the stall rather than on the total lets a slow machine take its time and still
    fails soon when nothing moves; pytest's own timeout bounds the total.
    """

    def __init__(self, what: str | Callable[[], str], stall_s: float) -> None:
        self._what, self._stall_s = what, stall_s
        self._started_at = self._changed_at = time.monotonic()
        self._last_value: object = None
        self._poll_s = MIN_POLL_S

    def check(self, value: object) -> float:
        """Return how many seconds to wait before the next poll."""
        now = time.monotonic()
        if value != self._last_value:
            self._last_value, self._changed_at = value, now
        if now - self._changed_at > self._stall_s:
            what = self._what if isinstance(self._what, str) else self._what()
            raise AssertionError(
                f"Timed out waiting for {what}: no change in {self._stall_s:g} s "
                f"({now - self._started_at:.0f} s in all). Last value: {value!r}"
            )
        self._poll_s = min(MAX_POLL_S, self._poll_s * 2)
        return self._poll_s


@overload
async def eventually(
    probe: Callable[[], Awaitable[T]],
    accept: Callable[[T], object] = ...,
    *,
    what: str | Callable[[], str] = ...,
    stall_s: float = ...,
) -> T: ...


@overload
async def eventually(
    probe: Callable[[], T],
    accept: Callable[[T], object] = ...,
    *,
    what: str | Callable[[], str] = ...,
    stall_s: float = ...,
) -> T: ...


async def eventually(
    probe: Callable[[], Any],
    accept: Callable[[Any], object] = bool,
    *,
    what: str | Callable[[], str] = "",
    stall_s: float = STALL_TIMEOUT_S,
) -> Any:
    """Poll `probe` until `accept` holds for its value, and return the value."""
    deadline = StallDeadline(what or probe.__qualname__, stall_s)
    while True:
        value = probe()
        if inspect.isawaitable(value):
            value = await value
        if accept(value):
            return value
        await asyncio.sleep(deadline.check(value))


def eventually_blocking(
    probe: Callable[[], T],
    accept: Callable[[T], object] = bool,
    *,
    what: str | Callable[[], str] = "",
    stall_s: float = STALL_TIMEOUT_S,
) -> T:
    """Do the same as `eventually` where no event loop runs."""
    deadline = StallDeadline(what or probe.__qualname__, stall_s)
    while not accept(value := probe()):
        time.sleep(deadline.check(value))
    return value
