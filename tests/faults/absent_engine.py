"""An engine that is away for minutes: its stage waits, those before it go on, and nothing is buried."""

from __future__ import annotations

import time

from processors import STAGES
from tests.faults.trial import Fault, Trial, buried, passed

BEFORE = [stage for stage in STAGES if stage.name in ("receive", "transcribe", "chunk")]
EMBED = next(stage for stage in STAGES if stage.name == "embed")


def strike(trial: Trial) -> int:
    assert trial.engine_wire is not None, "this fault asks for a server"
    trial.staffed()
    trial.feed_to(0.3)
    trial.engine_wire.away = True
    started = time.monotonic()
    trial.feed_to(1.0)
    trial.crew.await_quiet(BEFORE)
    time.sleep(max(0.0, trial.span_s - passed(started)))
    trial.expect(trial.crew.waiting(EMBED) > 0, "nothing waited for the engine")
    trial.expect(buried(trial.crew) <= trial.clean.buried, f"buried while the engine was away: {sorted(buried(trial.crew) - trial.clean.buried)}")
    trial.engine_wire.away = False
    return trial.engine_wire.refused


FAULT = Fault("an engine is away", strike, share=4.0, served=True)
