"""An engine that takes a question and never answers it."""

from __future__ import annotations

from tests.faults.engine_trouble import in_doses
from tests.faults.trial import Fault, Trial


def strike(trial: Trial) -> int:
    return in_doses(trial, lambda: {"hang": True})


FAULT = Fault("an engine hangs", strike, served=True)
