"""The broker stands still (SIGSTOP) for longer than a worker may be silent, and goes on as if nothing had been."""

from __future__ import annotations

import os
import signal
import time

from tests.faults.trial import Fault, Trial
from tests.faults.worker import SESSION_S

EACH_S = 15.0


def strike(trial: Trial) -> int:
    def stand_still() -> None:
        pid = trial.ground.broker.status().pid or 0
        os.kill(pid, signal.SIGSTOP)
        try:
            time.sleep(SESSION_S + trial.mood.uniform(1.0, 3.0))
        finally:
            os.kill(pid, signal.SIGCONT)

    return trial.interrupted(EACH_S, stand_still, at_most_s=1.0)


FAULT = Fault("the broker stands still", strike, own=frozenset({"kafka"}))
