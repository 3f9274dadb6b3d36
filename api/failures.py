"""Failed authentications: logged, counted, and bounded for each address."""

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
    """Counts failures of each address in windows of WINDOW_S. The address whose last failure is longest ago is forgotten first."""

    max_failures: int
    clock: Callable[[], float] = time.monotonic
    _windows: OrderedDict[str, tuple[float, int]] = field(default_factory=OrderedDict)

    def note(self, address: str) -> None:
        until, failures = self._windows.pop(address, (0.0, 0))
        if self.clock() >= until:
            until, failures = self.clock() + WINDOW_S, 0
        self._windows[address] = (until, failures + 1)
        while len(self._windows) > MAX_ADDRESSES:
            self._windows.popitem(last=False)

    def wait_s(self, address: str) -> int | None:
        """Seconds until the address may fail again; None while it may."""
        until, failures = self._windows.get(address, (0.0, 0))
        left = until - self.clock()
        return max(1, ceil(left)) if failures >= self.max_failures and left > 0 else None
