"""Metering of calls to models.

An engine meters each request that it sends, so that retries and repaired replies are metered too.
The meter of a question travels in a context variable: the ports of engines stay free of it, and
tasks that the question starts inherit it. Without a meter nothing is counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

from schemas.ports.engines import ChatUsage


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """A request to a model server, with upper bounds of its tokens."""

    task: str
    model: str
    max_input_tokens: int
    max_output_tokens: int = 0


class CallMeter(Protocol):
    def reserve(self, call: PlannedCall) -> None:
        """Reserve the bounds of the call. Raises BudgetExceeded if a cap does not allow them."""

    def charge(self, call: PlannedCall, usage: ChatUsage | None) -> None:
        """Replace the reservation by the usage; None: it is unknown, and the bounds count."""

    def release(self, call: PlannedCall) -> None:
        """Drop the reservation of a call that the server has not served."""

    def count_local(self, task: str, model: str) -> None:
        """Count a call of a model in this process."""


@dataclass(slots=True)
class MeteredCall:
    """Outcome of a call, set by the engine."""

    usage: ChatUsage | None = None
    is_served: bool = True


_METER: ContextVar[CallMeter | None] = ContextVar("call_meter", default=None)


@contextmanager
def use_meter(meter: CallMeter) -> Iterator[None]:
    """Meter the calls that are made in this context."""
    token = _METER.set(meter)
    try:
        yield
    finally:
        _METER.reset(token)


@contextmanager
def meter_call(call: PlannedCall) -> Iterator[MeteredCall]:
    """Reserve a call, then charge what it used. Raises BudgetExceeded."""
    meter, metered = _METER.get(), MeteredCall()
    if meter is None:
        yield metered
        return
    meter.reserve(call)
    try:
        yield metered
    except BaseException:
        # A stream may have reported a part of its tokens.
        metered.usage = None
        raise
    finally:
        # After a time-out or a lost reply the server may still have worked: the bounds count.
        if metered.is_served:
            meter.charge(call, metered.usage)
        else:
            meter.release(call)


def count_local_call(task: str, model: str) -> None:
    if (meter := _METER.get()) is not None:
        meter.count_local(task, model)
