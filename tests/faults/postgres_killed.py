"""`kill -9` of Postgres under load, and its restart: workers wait for it, and none exits."""

from __future__ import annotations

import os
import signal
import time

from tests.faults.trial import Fault, FaultTrial

ROUND_S = 8.0


def inject(trial: FaultTrial) -> int:
    def kill() -> None:
        os.kill(
            int((trial.environment.server.data / "postmaster.pid").read_text().split()[0]),
            signal.SIGKILL,
        )
        time.sleep(trial.rng.uniform(0.1, 1.0))
        trial.environment.server.start()

    return trial.interrupt_rounds(ROUND_S, kill, at_most_s=0.6)


FAULT = Fault("kill -9 of Postgres", inject, dedicated_services=frozenset({"postgres"}))
