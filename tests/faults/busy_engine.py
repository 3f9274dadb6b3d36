"""An engine that answers 429, with and without saying when to come again: nothing is buried."""

from __future__ import annotations

from tests.faults.engine_trouble import in_doses
from tests.faults.trial import Fault, Trial


def strike(trial: Trial) -> int:
    return in_doses(trial, lambda: trial.mood.choice([{"status": 429}, {"status": 429, "retry_after": 0.5}, {"status": 429, "retry_after": 60}]))


FAULT = Fault("an engine answers 429", strike, served=True)
