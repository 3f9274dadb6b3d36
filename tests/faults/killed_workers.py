"""`kill -9` at every await between reading an event and acknowledging it: each stage's worker dies
at one of them, and the next at another one.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass

from processors import STAGES
from tests.faults.trial import Fault, FaultTrial, seconds_since
from tests.support.cluster import WorkerProcess

UNRELATED_STAGES = ("control", "announce", "erase", "runs", "judgements")
"""Stages that hear nothing of documents."""
KILL_TIMEOUT_S = 15.0
"""A place that is not come by is given up."""
FIRST_KILL_TIMEOUT_S = 60.0
MAX_DURATION_FACTOR = 3.0
"""Times the span: so long it goes on for stages that were not struck yet."""


@dataclass
class StageVictims:
    """One stage's workers, one after the other; `places` are those to die at still."""

    trial: FaultTrial
    stage: str
    kill_points: list[str]
    worker: WorkerProcess | None = None
    started_at: float = 0.0
    n_killed: int = 0

    @property
    def is_done(self) -> bool:
        return self.worker is None and not self.kill_points

    def check_worker(self) -> None:
        if self.worker is None:
            self._start_next()
        elif self.worker.process.poll() is not None:
            self.n_killed += 1
            self.worker = None
        elif seconds_since(self.started_at) > KILL_TIMEOUT_S:
            self.stop_worker()

    def stop_worker(self) -> None:
        if self.worker is not None and self.worker.process.poll() is None:
            self.trial.fleet.stop_worker(self.worker, signal.SIGKILL)
        self.worker = None

    def _start_next(self) -> None:
        if self.kill_points:
            self.worker, self.started_at = (
                self.trial.fleet.spawn_worker([self.stage], die_at=self.kill_points.pop()),
                time.monotonic(),
            )
            self.trial.fleet.stopped_workers.append(self.worker)


def inject(trial: FaultTrial) -> int:
    await_points = list(trial.baseline.await_points)
    trial.rng.shuffle(await_points)
    trial.start_workers(stages=UNRELATED_STAGES)
    stages = [stage.name for stage in STAGES if stage.name not in UNRELATED_STAGES]
    victims = [
        StageVictims(
            trial, stage, [place for place in await_points if place.startswith(f"{stage}|")]
        )
        for stage in stages
    ]
    started = time.monotonic()
    while not is_timed_out(victims, seconds_since(started), trial.duration_s) and not is_finished(
        victims, seconds_since(started) >= trial.duration_s
    ):
        trial.push_share(min(0.9, seconds_since(started) / trial.duration_s))
        for each in victims:
            each.check_worker()
        time.sleep(0.05)
    for each in victims:
        each.stop_worker()
    trial.fleet.spawn_worker(stages)
    return sum(each.n_killed for each in victims)


def is_timed_out(victims: Sequence[StageVictims], elapsed_s: float, duration_s: float) -> bool:
    """On a busy machine the first worker may die only after all the time there is."""
    return elapsed_s >= (
        MAX_DURATION_FACTOR * duration_s
        if any(each.n_killed for each in victims)
        else max(MAX_DURATION_FACTOR * duration_s, FIRST_KILL_TIMEOUT_S)
    )


def is_finished(victims: Sequence[StageVictims], timed_out: bool) -> bool:
    return all(each.is_done for each in victims) or (
        timed_out and all(each.n_killed or each.is_done for each in victims)
    )


FAULT = Fault(
    "kill -9 of a worker at an await between read and acknowledge", inject, duration_share=5.0
)
