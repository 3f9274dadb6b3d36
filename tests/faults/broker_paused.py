"""Pause the broker (SIGSTOP) for longer than the session timeout of a worker, then resume it."""

from __future__ import annotations

import os
import signal
import time

from tests.faults.trial import Fault, FaultTrial
from tests.faults.worker import SESSION_TIMEOUT_S

ROUND_S = 15.0


def inject(trial: FaultTrial) -> int:
    def pause() -> None:
        pid = trial.environment.broker.status().pid or 0
        os.kill(pid, signal.SIGSTOP)
        try:
            time.sleep(SESSION_TIMEOUT_S + trial.rng.uniform(1.0, 3.0))
        finally:
            os.kill(pid, signal.SIGCONT)

    return trial.interrupt_rounds(ROUND_S, pause, at_most_s=1.0)


FAULT = Fault("the broker is suspended", inject, dedicated_services=frozenset({"kafka"}))
