"""Measure CPU time so that other work on the machine does not count."""

from __future__ import annotations

import time
from collections.abc import Callable

RUNS = 3


def measure_cpu_s(work: Callable[[], object]) -> float:
    """Return the CPU seconds of this thread, the best of three runs: noise only adds."""
    return min(_measure_once(work) for _ in range(RUNS))


def _measure_once(work: Callable[[], object]) -> float:
    started = time.thread_time()
    work()
    return time.thread_time() - started
