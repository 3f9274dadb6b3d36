"""A model server that fails in bursts while the pipeline embeds with it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tests.faults.trial import FaultTrial, seconds_since
from tests.support.eventually import eventually_blocking

BURST_SIZE = 3
"""Failures in a row: fewer than the attempts of an event."""
RECOVERY_S = 4.0
EVENTS_PER_BURST = 8


def inject_in_bursts(trial: FaultTrial, make_fault: Callable[[], dict[str, Any]]) -> int:
    """Fail three requests, wait for the recovery, and repeat; return the number of failures."""
    server = trial.model_server
    assert server is not None, "this fault needs a model server"
    trial.start_workers()
    started, n_faults = time.monotonic(), 0
    while not n_faults or (
        seconds_since(started) < trial.duration_s and trial.n_pushed < len(trial.events)
    ):
        for _ in range(BURST_SIZE):
            server.fail(on="embeddings", **make_fault())
        n_faults += BURST_SIZE
        trial.push_next(
            max(EVENTS_PER_BURST, len(trial.events) // len(trial.get_rounds(RECOVERY_S)))
        )
        eventually_blocking(lambda: server.n_pending_faults == 0, what="requests to the engine")
        time.sleep(RECOVERY_S)
    return n_faults
