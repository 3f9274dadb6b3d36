"""The broker stands still (SIGSTOP) for longer than a worker may be silent, and goes on as if nothing had been."""

from __future__ import annotations

import os
import signal
import time

from tests.faults.trial import Fault, Trial
from tests.faults.worker import SESSION_S

EACH_S = 15.0


def strike(trial: Trial) -> int:
    trial.staffed(2)
    trial.crew.await_members("anabranch.embed.g1", 2)
    rounds = trial.rounds(EACH_S)
    for number in rounds:
        trial.feed_to((number + 1) / (len(rounds) + 1))
        time.sleep(trial.mood.uniform(0.1, 1.0))
        stand_still(trial, SESSION_S + trial.mood.uniform(1.0, 3.0))
        trial.heard(len(trial.sent))
    return len(rounds)


def stand_still(trial: Trial, seconds: float) -> None:
    pid = trial.ground.broker.status().pid or 0
    os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(seconds)
    finally:
        os.kill(pid, signal.SIGCONT)


FAULT = Fault("the broker stands still", strike, own=frozenset({"kafka"}))
