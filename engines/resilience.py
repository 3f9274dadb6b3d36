"""Calls of model servers with retries and a circuit breaker (Nygard, Release It!, 2007).

Kept apart from the client library, whose import takes a second that local models need not pay.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import stamina
from purgatory import AsyncCircuitBreakerFactory
from purgatory.domain.messages.base import Event
from purgatory.domain.messages.events import ContextChanged
from purgatory.domain.model import OpenedState

from engines.server_settings import (
    NoServerInstrumentation,
    ServerInstrumentation,
    ServerRetryPolicy,
)
from schemas.batching import CALLER_ABANDONED
from schemas.errors import EngineUnavailable, PermanentError

T = TypeVar("T")


class ServerCallError(EngineUnavailable):
    """A call to a server failed; `retry_after` is the wait in seconds that the server requested."""

    def __init__(
        self,
        detail: str,
        *,
        code: str | None = None,
        remedy: str | None = None,
        retry_after: float | None = None,
        is_retryable: bool = True,
    ) -> None:
        super().__init__(detail, code=code, remedy=remedy)
        self.retry_after, self.is_retryable = retry_after, is_retryable


class ResilientCaller:
    """Calls one server under a retry policy; while its circuit is open, calls fail at once."""

    def __init__(
        self,
        name: str,
        retry_policy: ServerRetryPolicy | None = None,
        instrumentation: ServerInstrumentation | None = None,
    ) -> None:
        self._name = name
        self._retry_policy = retry_policy or ServerRetryPolicy()
        self._instrumentation = instrumentation or NoServerInstrumentation()
        self._breakers = AsyncCircuitBreakerFactory(
            self._retry_policy.failure_threshold,
            self._retry_policy.circuit_open_s,
            # A rejected input or a caller that left says nothing about the server's health.
            exclude=[
                PermanentError,
                (asyncio.CancelledError, lambda error: CALLER_ABANDONED in error.args),
            ],
        )
        self._breakers.add_listener(self._handle_circuit_change)
        self._answer_count = 0
        self._instrumentation.record_circuit_state("closed")

    def _handle_circuit_change(self, name: str, kind: str, event: Event) -> None:
        if isinstance(event, ContextChanged):
            self._instrumentation.record_circuit_state(event.state)

    async def call(self, request: Callable[[], Awaitable[T]]) -> T:
        """Send the request and return its reply.

        `request` raises ServerCallError, which is retried if `is_retryable`, or PermanentError.
        Raises the last ServerCallError when no attempt is left.
        """
        try:
            result = await self._call_with_retries(request)
        except EngineUnavailable as error:
            # By this count the stage separates an outage from a failure that one input causes.
            error.n_answers = self._answer_count
            raise
        self._answer_count += 1
        return result

    async def _call_with_retries(self, request: Callable[[], Awaitable[T]]) -> T:
        retry_policy = self._retry_policy
        attempts = stamina.retry_context(
            on=self._get_retry_wait,
            attempts=retry_policy.attempts,
            timeout=retry_policy.total_timeout_s,
            wait_initial=retry_policy.first_wait_s,
            wait_max=retry_policy.max_wait_s,
            wait_jitter=retry_policy.jitter_s,
        )
        async for attempt in attempts:
            with attempt:
                return await self._call_once(request)
        raise EngineUnavailable(f"{self._name} was not called: the retry policy allows no attempt.")

    async def _call_once(self, request: Callable[[], Awaitable[T]]) -> T:
        try:
            # Inside the retries, so that an opened circuit ends them at once.
            async with await self._breakers.get_breaker(self._name):
                self._instrumentation.record_request()
                return await request()
        except OpenedState as error:
            raise ServerCallError(
                f"{self._name} failed {self._retry_policy.failure_threshold} times in a row; "
                f"its circuit stays open for {self._retry_policy.circuit_open_s:g} s.",
                is_retryable=False,
            ) from error

    def _get_retry_wait(self, error: Exception) -> bool | float:
        """Return whether to retry, or the wait in seconds that the server requested."""
        # A longer wait than `max_wait_s` is left to the stage, which pauses instead of holding the
        # call.
        if not isinstance(error, ServerCallError) or not error.is_retryable:
            return False
        if error.retry_after is None:
            return True
        return error.retry_after if error.retry_after <= self._retry_policy.max_wait_s else False
