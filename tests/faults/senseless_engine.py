"""An engine that answers NaN, vectors of another dimension, too few of them, or no JSON at all."""

from __future__ import annotations

from tests.faults.engine_trouble import in_doses
from tests.faults.trial import Fault, Trial

SENSELESS = ("nan", "wrong_dimension", "drop", "malformed")


def strike(trial: Trial) -> int:
    return in_doses(trial, lambda: {trial.mood.choice(SENSELESS): True})


FAULT = Fault("an engine answers NaN or the wrong dimension", strike, served=True)
