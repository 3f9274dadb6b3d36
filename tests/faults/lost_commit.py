"""A COMMIT that Postgres carries out and whose answer never comes: the worker cannot know, and must
be right either way.
"""

from __future__ import annotations

import time

from tests.faults.relay import run_relay
from tests.faults.trial import Fault, FaultTrial, seconds_since

LOSS_ODDS = 6
MIN_LOST = 3


def inject(trial: FaultTrial) -> int:
    direct_environment = trial.fleet.environment
    with run_relay(trial.fleet.dsn) as relay:
        trial.fleet.environment = {
            **direct_environment,
            "ANABRANCH_DATABASE__URL": relay.relay_url(trial.fleet.dsn),
        }
        trial.start_workers(2)
        relay.should_drop_answer = lambda piece: (
            is_commit(piece) and trial.rng.randrange(LOSS_ODDS) == 0
        )
        started = time.monotonic()
        while seconds_since(started) < trial.duration_s or (
            relay.n_dropped < MIN_LOST and trial.n_pushed < len(trial.events)
        ):
            trial.push_share(seconds_since(started) / trial.duration_s)
            time.sleep(0.1)
        trial.finish()
        for worker in trial.fleet.list_running():
            trial.fleet.stop_worker(worker)
    trial.fleet.environment = direct_environment
    return relay.n_dropped


def is_commit(piece: bytes) -> bool:
    """A simple query of Postgres' protocol, version 3."""
    return piece.startswith(b"Q") and b"COMMIT" in piece[:16]


FAULT = Fault("a COMMIT whose answer is lost", inject)
