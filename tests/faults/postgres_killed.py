"""`kill -9` of Postgres under load, and its start again: workers wait for it, and none ends."""

from __future__ import annotations

import os
import signal
import time

from tests.faults.trial import Fault, Trial

EACH_S = 8.0


def strike(trial: Trial) -> int:
    trial.staffed(2)
    rounds = trial.rounds(EACH_S)
    for number in rounds:
        trial.feed_to((number + 1) / (len(rounds) + 1))
        time.sleep(trial.mood.uniform(0.1, 0.6))
        os.kill(int((trial.ground.server.data / "postmaster.pid").read_text().split()[0]), signal.SIGKILL)
        time.sleep(trial.mood.uniform(0.1, 1.0))
        trial.ground.server.start()
        trial.heard(len(trial.sent))
    return len(rounds)


FAULT = Fault("kill -9 of Postgres", strike, own=frozenset({"postgres"}))
