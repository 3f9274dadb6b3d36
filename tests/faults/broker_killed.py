"""`kill -9` of the broker under load, and its restart on the same data folder."""

from __future__ import annotations

import os
import signal
import time

from tests.faults.trial import Fault, FaultTrial
from tests.support.postgres_fixture import run_in_thread

ROUND_S = 25.0


def inject(trial: FaultTrial) -> int:
    def kill() -> None:
        os.kill(trial.environment.broker.status().pid or 0, signal.SIGKILL)
        time.sleep(trial.rng.uniform(0.1, 2.0))
        run_in_thread(trial.environment.broker.start)

    return trial.interrupt_rounds(ROUND_S, kill, at_most_s=1.0)


FAULT = Fault("kill -9 of the broker", inject, dedicated_services=frozenset({"kafka"}))
