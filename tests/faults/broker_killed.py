"""`kill -9` of the broker under load, and its restart on the same folder."""

from __future__ import annotations

import os
import signal
import time

from tests.faults.trial import Fault, Trial
from tests.postgres_fixture import elsewhere

EACH_S = 25.0


def strike(trial: Trial) -> int:
    trial.staffed(2)
    trial.crew.await_members("anabranch.embed.g1", 2)
    rounds = trial.rounds(EACH_S)
    for number in rounds:
        trial.feed_to((number + 1) / (len(rounds) + 1))
        time.sleep(trial.mood.uniform(0.1, 1.0))
        os.kill(trial.ground.broker.status().pid or 0, signal.SIGKILL)
        time.sleep(trial.mood.uniform(0.1, 2.0))
        elsewhere(trial.ground.broker.start)
        trial.heard(len(trial.sent))
    return len(rounds)


FAULT = Fault("kill -9 of the broker", strike, own=frozenset({"kafka"}))
