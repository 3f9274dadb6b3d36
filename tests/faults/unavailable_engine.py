"""An unavailable engine: its stage waits, earlier stages continue, nothing is dead-lettered."""

from __future__ import annotations

import time

from processors import STAGES
from tests.faults.trial import Fault, FaultTrial, fetch_dead_letters, seconds_since

UPSTREAM_STAGES = [stage for stage in STAGES if stage.name in ("receive", "transcribe", "chunk")]
EMBED_STAGE = next(stage for stage in STAGES if stage.name == "embed")


def inject(trial: FaultTrial) -> int:
    assert trial.model_relay is not None, "this fault needs a model server"
    trial.start_workers()
    trial.push_share(0.3)
    trial.model_relay.unavailable = True
    started = time.monotonic()
    trial.push_share(1.0)
    trial.fleet.wait_until_idle(UPSTREAM_STAGES)
    time.sleep(max(0.0, trial.duration_s - seconds_since(started)))
    trial.expect(trial.fleet.count_unfinished(EMBED_STAGE) > 0, "nothing waited for the engine")
    unexpected = fetch_dead_letters(trial.fleet) - trial.baseline.dead_letters
    trial.expect(
        not unexpected, f"dead-lettered while the engine was unavailable: {sorted(unexpected)}"
    )
    trial.model_relay.unavailable = False
    return trial.model_relay.n_refused


FAULT = Fault("an engine is away", inject, duration_share=4.0, needs_model_server=True)
