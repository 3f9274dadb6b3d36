"""An engine that responds with 429, with and without Retry-After: nothing is dead-lettered."""

from __future__ import annotations

from tests.faults.faulty_engine import inject_in_bursts
from tests.faults.trial import Fault, FaultTrial


def inject(trial: FaultTrial) -> int:
    return inject_in_bursts(
        trial,
        lambda: trial.rng.choice(
            [
                {"status": 429},
                {"status": 429, "retry_after": 0.5},
                {"status": 429, "retry_after": 60},
            ]
        ),
    )


FAULT = Fault("an engine answers 429", inject, needs_model_server=True)
