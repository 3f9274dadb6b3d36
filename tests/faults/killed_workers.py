"""`kill -9` at every await between reading an event and acknowledging it: each stage's worker dies at
one of them, and the next at another one.

The seed orders the await points of the clean run. A point that a worker does not reach in time goes
to the end of the queue, so that points not tried yet come first and rare ones are tried again while
there is time. A stage without points left gets a worker that lives, as the stages after it need its
events.
"""

from __future__ import annotations

import signal
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from processors import STAGES
from tests.faults.await_points import AwaitCoverage
from tests.faults.trial import Fault, FaultTrial, seconds_since
from tests.faults.worker import DIED
from tests.support.cluster import WorkerProcess

UNRELATED_STAGES = ("control", "announce", "erase", "runs", "judgements")
"""Stages that hear nothing of documents."""
KILL_TIMEOUT_S = 15.0
"""How long a worker may live without reaching its await point."""
FIRST_KILL_TIMEOUT_S = 60.0
MAX_DURATION_FACTOR = 3.0
"""Times the duration: so long it continues for what was not struck yet."""
FULL_COVERAGE_DURATION_S = 100.0
"""From this duration on the goal is every await point, in a shorter run one per stage."""


@dataclass
class StageVictims:
    """One stage's workers, one after the other; `kill_points` are those to die at still."""

    trial: FaultTrial
    stage: str
    kill_points: deque[str]
    struck: set[str] = field(default_factory=set)
    n_killed: int = 0
    _worker: WorkerProcess | None = None
    _kill_point: str | None = None
    _started_at: float = 0.0

    @property
    def is_covered(self) -> bool:
        return not self.kill_points and self._kill_point is None

    def check_worker(self) -> None:
        if self._worker is None:
            self._start_worker()
        elif self._worker.process.poll() is not None or (
            self._kill_point is not None and seconds_since(self._started_at) > KILL_TIMEOUT_S
        ):
            self.stop_worker()

    def stop_worker(self) -> None:
        """Record where the worker died; one that still lives is killed, and its point queued again."""
        worker, self._worker = self._worker, None
        kill_point, self._kill_point = self._kill_point, None
        if worker is None:
            return
        if worker.process.poll() is None:
            self.trial.fleet.stop_worker(worker, signal.SIGKILL)
        if kill_point is not None and DIED + kill_point in worker.note_lines:
            self.n_killed += 1
            self.struck.add(kill_point)
            # A worker that ended by itself, without this note, is reported by the verdict.
            self.trial.fleet.stopped_workers.append(worker)
        elif kill_point is not None:
            self.kill_points.append(kill_point)

    def _start_worker(self) -> None:
        self._kill_point = self.kill_points.popleft() if self.kill_points else None
        self._worker = self.trial.fleet.spawn_worker([self.stage], die_at=self._kill_point)
        self._started_at = time.monotonic()


def inject(trial: FaultTrial) -> int:
    await_points = list(trial.baseline.await_points)
    trial.rng.shuffle(await_points)
    trial.start_workers(stages=UNRELATED_STAGES)
    stages = [stage.name for stage in STAGES if stage.name not in UNRELATED_STAGES]
    victims = [
        StageVictims(
            trial,
            stage,
            deque(point for point in await_points if point.startswith(f"{stage}|")),
        )
        for stage in stages
    ]
    is_full = trial.duration_s >= FULL_COVERAGE_DURATION_S
    push_duration_s = trial.duration_s * (MAX_DURATION_FACTOR if is_full else 1.0)
    started = time.monotonic()
    while not is_timed_out(victims, seconds_since(started), trial.duration_s) and not is_finished(
        victims, timed_out=not is_full and seconds_since(started) >= trial.duration_s
    ):
        trial.push_share(min(0.9, seconds_since(started) / push_duration_s))
        for each in victims:
            each.check_worker()
        time.sleep(0.05)
    for each in victims:
        each.stop_worker()
    trial.await_coverage = AwaitCoverage(
        frozenset(await_points), frozenset().union(*(each.struck for each in victims))
    )
    trial.fleet.spawn_worker(stages)
    return sum(each.n_killed for each in victims)


def is_timed_out(victims: Sequence[StageVictims], elapsed_s: float, duration_s: float) -> bool:
    """On a busy machine the first worker may die only after all the time there is."""
    return elapsed_s >= (
        MAX_DURATION_FACTOR * duration_s
        if any(each.n_killed for each in victims)
        else max(MAX_DURATION_FACTOR * duration_s, FIRST_KILL_TIMEOUT_S)
    )


def is_finished(victims: Sequence[StageVictims], *, timed_out: bool) -> bool:
    return all(each.is_covered for each in victims) or (
        timed_out and all(each.n_killed or each.is_covered for each in victims)
    )


FAULT = Fault(
    "kill -9 of a worker at an await between read and acknowledge", inject, duration_share=5.0
)
