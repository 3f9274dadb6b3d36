"""A rebalance storm: one to six workers join and leave, some of them by `kill -9`."""

from __future__ import annotations

import signal
import time

from tests.faults.trial import Fault, FaultTrial, seconds_since

MAX_WORKERS = 6


def inject(trial: FaultTrial) -> int:
    trial.start_workers()
    started, changes = time.monotonic(), 0
    while seconds_since(started) < trial.duration_s or changes < MAX_WORKERS:
        trial.push_share(min(0.9, seconds_since(started) / trial.duration_s))
        changes += scale_workers(trial, trial.rng.randint(1, MAX_WORKERS))
        time.sleep(trial.rng.uniform(0.2, 1.5))
    return changes


def scale_workers(trial: FaultTrial, count: int) -> int:
    """Start or stop workers until `count` run; return how many were started or stopped."""
    running = trial.fleet.list_running()
    for worker in trial.rng.sample(running, max(0, len(running) - count)):
        trial.fleet.stop_worker(worker, trial.rng.choice([signal.SIGTERM, signal.SIGKILL]))
    for _ in range(count - len(running)):
        trial.fleet.spawn_worker()
    return abs(count - len(running))


FAULT = Fault("rebalance storm of one to six workers", inject)
