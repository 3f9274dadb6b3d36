"""Limit failed authentications per address."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil

WINDOW_S = 60.0
MAX_ADDRESSES = 10_000


@dataclass(slots=True)
class FailureLimit:
    """Failures per address in windows of WINDOW_S.

    When full, evicts the address whose last failure is oldest.
    """

    max_failures: int
    clock: Callable[[], float] = time.monotonic
    _windows: OrderedDict[str, tuple[float, int]] = field(default_factory=OrderedDict)

    def record_failure(self, address: str) -> None:
        window_end, failures = self._windows.pop(address, (0.0, 0))
        if self.clock() >= window_end:
            window_end, failures = self.clock() + WINDOW_S, 0
        self._windows[address] = (window_end, failures + 1)
        while len(self._windows) > MAX_ADDRESSES:
            self._windows.popitem(last=False)

    def get_wait_s(self, address: str) -> int | None:
        """Return the seconds until the address may fail again; None while it may."""
        window_end, failures = self._windows.get(address, (0.0, 0))
        remaining_s = window_end - self.clock()
        return (
            max(1, ceil(remaining_s)) if failures >= self.max_failures and remaining_s > 0 else None
        )
