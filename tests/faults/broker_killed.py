"""`kill -9` of the broker under load, and its restart on the same folder."""

from __future__ import annotations

import os
import signal
import time

from tests.faults.trial import Fault, Trial
from tests.postgres_fixture import elsewhere

EACH_S = 25.0


def strike(trial: Trial) -> int:
    def kill() -> None:
        os.kill(trial.ground.broker.status().pid or 0, signal.SIGKILL)
        time.sleep(trial.mood.uniform(0.1, 2.0))
        elsewhere(trial.ground.broker.start)

    return trial.interrupted(EACH_S, kill, at_most_s=1.0)


FAULT = Fault("kill -9 of the broker", strike, own=frozenset({"kafka"}))
