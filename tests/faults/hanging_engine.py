"""An engine that accepts a request and never responds."""

from __future__ import annotations

from tests.faults.faulty_engine import inject_in_bursts
from tests.faults.trial import Fault, FaultTrial


def inject(trial: FaultTrial) -> int:
    return inject_in_bursts(trial, lambda: {"hang": True})


FAULT = Fault("an engine hangs", inject, needs_model_server=True)
