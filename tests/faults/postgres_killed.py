"""`kill -9` of Postgres under load, and its start again: workers wait for it, and none ends."""

from __future__ import annotations

import os
import signal
import time

from tests.faults.trial import Fault, Trial

EACH_S = 8.0


def strike(trial: Trial) -> int:
    def kill() -> None:
        os.kill(int((trial.ground.server.data / "postmaster.pid").read_text().split()[0]), signal.SIGKILL)
        time.sleep(trial.mood.uniform(0.1, 1.0))
        trial.ground.server.start()

    return trial.interrupted(EACH_S, kill, at_most_s=0.6)


FAULT = Fault("kill -9 of Postgres", strike, own=frozenset({"postgres"}))
