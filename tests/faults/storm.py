"""A rebalance storm: from one to six workers, coming and going, some of them by `kill -9`."""

from __future__ import annotations

import signal
import time

from tests.faults.trial import Fault, Trial, passed

MOST = 6


def strike(trial: Trial) -> int:
    trial.staffed()
    started, changes = time.monotonic(), 0
    while passed(started) < trial.span_s or changes < MOST:
        trial.feed_to(min(0.9, passed(started) / trial.span_s))
        changes += change_to(trial, trial.mood.randint(1, MOST))
        time.sleep(trial.mood.uniform(0.2, 1.5))
    return changes


def change_to(trial: Trial, count: int) -> int:
    """Until there are so many workers; returns how many came or went."""
    there = trial.crew.alive()
    for worker in trial.mood.sample(there, max(0, len(there) - count)):
        trial.crew.dismiss(worker, trial.mood.choice([signal.SIGTERM, signal.SIGKILL]))
    for _ in range(count - len(there)):
        trial.crew.employ()
    return abs(count - len(there))


FAULT = Fault("rebalance storm of one to six workers", strike)
