"""A COMMIT that Postgres carries out and whose answer never comes: the worker cannot know, and must be right either way."""

from __future__ import annotations

import time

from tests.faults.trial import Fault, Trial, passed
from tests.faults.wire import wire

ONE_IN = 6
LEAST = 3


def strike(trial: Trial) -> int:
    direct = trial.crew.environment
    with wire(trial.crew.dsn) as found:
        trial.crew.environment = {**direct, "ANABRANCH_DATABASE__URL": found.before(trial.crew.dsn)}
        trial.staffed(2)
        found.lose = lambda piece: is_commit(piece) and trial.mood.randrange(ONE_IN) == 0
        started = time.monotonic()
        while passed(started) < trial.span_s or (found.lost < LEAST and trial.pushed < len(trial.events)):
            trial.feed_to(passed(started) / trial.span_s)
            time.sleep(0.1)
        trial.finish()
        for worker in trial.crew.alive():
            trial.crew.dismiss(worker)
    trial.crew.environment = direct
    return found.lost


def is_commit(piece: bytes) -> bool:
    """A simple query of Postgres' protocol, version 3."""
    return piece.startswith(b"Q") and b"COMMIT" in piece[:16]


FAULT = Fault("a COMMIT whose answer is lost", strike)
