"""A COMMIT that Postgres carries out and whose response is lost: the worker cannot know the result
and must be correct in either case.
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
        trial.fleet.stop_running()
    trial.fleet.environment = direct_environment
    return relay.n_dropped


def is_commit(piece: bytes) -> bool:
    """Return whether the bytes are a simple query of the Postgres protocol 3 that commits."""
    return piece.startswith(b"Q") and b"COMMIT" in piece[:16]


FAULT = Fault("a COMMIT whose answer is lost", inject)
