"""An engine that responds with NaN, vectors of another dimension, too few vectors, or no JSON."""

from __future__ import annotations

from tests.faults.faulty_engine import inject_in_bursts
from tests.faults.trial import Fault, FaultTrial

INVALID_RESPONSES = ("nan", "wrong_dimension", "drop", "malformed")


def inject(trial: FaultTrial) -> int:
    return inject_in_bursts(trial, lambda: {trial.rng.choice(INVALID_RESPONSES): True})


FAULT = Fault("an engine answers NaN or the wrong dimension", inject, needs_model_server=True)
