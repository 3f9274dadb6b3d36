"""Calls to servers: tried again with back-off where that may help, refused at once while a server is known to be away (circuit breaker, Nygard 2007)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

import stamina
from purgatory import AsyncCircuitBreakerFactory
from purgatory.domain.messages.base import Event
from purgatory.domain.messages.events import ContextChanged
from purgatory.domain.model import OpenedState

from schemas.errors import EngineUnavailable, PermanentError

T = TypeVar("T")

ABANDONED = "the caller went away while the server was answering"
"""Said by a CancelledError that is no failure of the server. Any other one is: it was waited for in vain."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a server is waited for. Times in seconds; `total` bounds all attempts with their waits, `rest` is how long an open circuit stays open."""

    attempts: int = 3
    first_wait: float = 0.2
    longest_wait: float = 5.0
    jitter: float = 0.2
    total: float = 180.0
    failures: int = 5
    rest: float = 15.0


def _abandoned(error: BaseException) -> bool:
    return ABANDONED in error.args


class Unanswered(EngineUnavailable):
    """A server did not answer, or asked to be left alone for `retry_after` seconds."""

    def __init__(self, detail: str, *, code: str | None = None, remedy: str | None = None, retry_after: float | None = None, again: bool = True) -> None:
        super().__init__(detail, code=code, remedy=remedy)
        self.retry_after, self.again = retry_after, again


State = Literal["closed", "opened", "half-opened"]


class Watch(Protocol):
    """Is told how a server does and what it counts. Returns at once."""

    def circuit(self, state: State) -> None: ...

    def tokens(self, model: str, kind: Literal["input", "output"], number: int) -> None: ...


class Unwatched:
    def circuit(self, state: State) -> None: ...

    def tokens(self, model: str, kind: Literal["input", "output"], number: int) -> None: ...


class Remote:
    """One server. After `failures` failures in a row its circuit opens, and calls fail at once for `rest` seconds."""

    def __init__(self, name: str, patience: Patience | None = None, watch: Watch | None = None) -> None:
        self._name, self._patience, self._watch = name, patience or Patience(), watch or Unwatched()
        self._breakers = AsyncCircuitBreakerFactory(
            self._patience.failures, self._patience.rest, exclude=[PermanentError, (asyncio.CancelledError, _abandoned)]
        )
        self._breakers.add_listener(self._changed)
        self._answers = 0
        self._watch.circuit("closed")

    def _changed(self, name: str, kind: str, event: Event) -> None:
        if isinstance(event, ContextChanged):
            self._watch.circuit(event.state)

    async def call(self, work: Callable[[], Awaitable[T]]) -> T:
        """What `work` returns. `work` raises Unanswered or PermanentError; the last Unanswered comes through when no attempt is left."""
        try:
            answer = await self._tried(work)
        except EngineUnavailable as error:
            error.answers = self._answers
            raise
        self._answers += 1
        return answer

    async def _tried(self, work: Callable[[], Awaitable[T]]) -> T:
        patience = self._patience
        attempts = stamina.retry_context(
            on=self._wait,
            attempts=patience.attempts,
            timeout=patience.total,
            wait_initial=patience.first_wait,
            wait_max=patience.longest_wait,
            wait_jitter=patience.jitter,
        )
        async for attempt in attempts:
            with attempt:
                return await self._once(work)
        raise EngineUnavailable(f"{self._name} was not called: no attempt is allowed.")

    async def _once(self, work: Callable[[], Awaitable[T]]) -> T:
        try:
            async with await self._breakers.get_breaker(self._name):
                return await work()
        except OpenedState as error:
            raise Unanswered(
                f"{self._name} failed {self._patience.failures} times in a row and is left alone for {self._patience.rest:g} s.", again=False
            ) from error

    def _wait(self, error: Exception) -> bool | float:
        if not isinstance(error, Unanswered) or not error.again:
            return False
        if error.retry_after is None:
            return True
        return error.retry_after if error.retry_after <= self._patience.longest_wait else False
