"""`kill -9` at every await between reading an event and acknowledging it.

A worker dies at the first await that it may die at, and the next worker takes its place. While
sites are missing, workers die at those only. Then each may die at half of the remaining points,
chosen by the seed, so that workers die both early and late in their work. A worker that reaches no
such point lives, as the stages after it need its events.

A short run kills one worker in each stage, and `make test` in four of them.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from random import Random

from processors import STAGES
from tests.faults.await_points import AwaitCoverage, get_sites, get_stage
from tests.faults.trial import Fault, FaultTrial, seconds_since
from tests.faults.worker import DIED, REACHED
from tests.support.cluster import WorkerProcess
from tests.support.null_worker import READY
from tests.support.repetitions import IS_LONG

SEPARATE_STAGES = ("receive", "transcribe", "chunk", "embed", "extract", "index", "graph")
"""Stages with workers of their own in a long run; the other stages share a worker."""
STAGES_WITHOUT_EVENTS = {
    "runs": "the workload runs no queries",
    "judgements": "the workload sends no feedback",
    "answers": "the workload saves no questions",
}
"""Stages that are not struck, and why."""
STAGES_IN_MAKE_TEST = ("receive", "embed", "index", "control")
"""Ingress, a stage with an engine, the one that completes revisions, and one without reactions."""
REPLACE_AFTER_S = 15.0
"""How long a ready worker may live before one that may die at other points replaces it."""
MAX_DURATION_FACTOR = 3.0
"""A run continues for this multiple of its duration until everything is struck."""
KILL_STALL_S = 90.0
"""A run on a busy machine continues beyond that while it lacks something that it must strike, until
no worker has died for this long.
"""
FULL_COVERAGE_DURATION_S = 100.0
"""From this duration on, a run strikes every await point that it can. It must strike every site; a
shorter run must strike every stage.
"""


@dataclass
class KillPlan:
    """Choose where the next worker of a stage dies."""

    is_full: bool
    reached: set[str]
    struck: set[str] = field(default_factory=set)
    spared_stages: frozenset[str] = frozenset()
    """Stages that a short run does not strike."""
    is_ending: bool = False
    """Set when only sites that are reached for the first time are struck still."""

    def choose_spared(self, stages: Sequence[str], rng: Random) -> frozenset[str]:
        """Return the stages, sites or points at which the next worker of these stages lives on."""
        if not self.is_full:
            return self.spared_stages.union(map(get_stage, self.struck))
        if self.targets_sites:
            return frozenset(get_sites(self.struck))
        unstruck = self.find_unstruck_points(stages)
        return frozenset(self.struck).union(rng.sample(unstruck, len(unstruck) // 2))

    @property
    def targets_sites(self) -> bool:
        return self.is_ending or bool(self.list_missing())

    def list_missing(self) -> list[str]:
        """Return the sites that a run has still to strike; in a short run, the stages."""
        reached, struck = (
            get_sites(points) if self.is_full else set(map(get_stage, points))
            for points in (self.reached, self.struck)
        )
        return sorted(reached - struck - self.spared_stages)

    def find_unstruck_points(self, stages: Sequence[str]) -> list[str]:
        return sorted(point for point in self.reached - self.struck if get_stage(point) in stages)

    def is_complete(self, stages: Sequence[str]) -> bool:
        return not (self.find_unstruck_points(stages) if self.is_full else self.list_missing())


@dataclass
class Victims:
    """The workers of some stages, one after the other."""

    trial: FaultTrial
    plan: KillPlan
    stages: Sequence[str]
    rng: Random
    n_killed: int = 0
    killed_at: float = field(default_factory=time.monotonic)
    """Time of the last kill, or of the start."""
    _worker: WorkerProcess | None = None
    _targets_sites: bool = False
    _ready_at: float | None = None

    def check_worker(self) -> None:
        if self._worker is None:
            self._start_worker()
        elif self._worker.process.poll() is not None or self._should_replace():
            self.stop_worker()
        # A busy machine takes longer to start a worker than the worker may live.
        elif self._ready_at is None and READY in self._worker.note_lines:
            self._ready_at = time.monotonic()

    def stop_worker(self) -> None:
        """Record where the worker died; kill it if it still lives."""
        worker, self._worker = self._worker, None
        if worker is None:
            return
        if worker.process.poll() is None:
            self.trial.fleet.stop_worker(worker, signal.SIGKILL)
        self._record_notes(worker)

    def release_worker(self) -> None:
        """Record what the worker reached, and let it live."""
        if self._worker is not None:
            self._record_notes(self._worker)

    def _record_notes(self, worker: WorkerProcess) -> None:
        notes = worker.note_lines
        self.plan.reached |= {
            line.removeprefix(REACHED) for line in notes if line.startswith(REACHED)
        }
        if died_at := {line.removeprefix(DIED) for line in notes if line.startswith(DIED)}:
            self.n_killed += 1
            self.killed_at = time.monotonic()
            self.plan.struck |= died_at
            # A worker that exits without this note is reported as an unexpected exit.
            self.trial.fleet.stopped_workers.append(worker)

    def _should_replace(self) -> bool:
        # A worker that may die at every missing site can only wait for it.
        return (
            self._ready_at is not None
            and seconds_since(self._ready_at) >= REPLACE_AFTER_S
            and not self.plan.is_complete(self.stages)
            and not (self._targets_sites and self.plan.targets_sites)
        )

    def _start_worker(self) -> None:
        self._targets_sites = self.plan.targets_sites
        self._ready_at = None
        self._worker = self.trial.fleet.spawn_worker(
            self.stages,
            notes_await_points=True,
            spared=self.plan.choose_spared(self.stages, self.rng),
        )


def inject(trial: FaultTrial) -> int:
    is_full = trial.duration_s >= FULL_COVERAGE_DURATION_S
    stages = [stage.name for stage in STAGES if stage.name not in STAGES_WITHOUT_EVENTS]
    plan = KillPlan(
        is_full,
        set(trial.baseline.await_points),
        spared_stages=frozenset() if IS_LONG else frozenset(stages).difference(STAGES_IN_MAKE_TEST),
    )
    trial.expect(
        set(map(get_stage, plan.reached)) == set(stages),
        f"stages with events: {sorted(set(map(get_stage, plan.reached)))}, expected: {stages}",
    )
    groups = [stages]
    if is_full:
        groups = [[stage] for stage in SEPARATE_STAGES]
        groups.append([stage for stage in stages if stage not in SEPARATE_STAGES])
    # Each group has its own generator: the order in which workers die does not change the choices.
    victims = [Victims(trial, plan, group, Random(trial.rng.random())) for group in groups]
    started = time.monotonic()
    max_duration_s = MAX_DURATION_FACTOR * trial.duration_s
    push_duration_s = max_duration_s if is_full else trial.duration_s
    while not all(plan.is_complete(each.stages) for each in victims):
        if seconds_since(started) >= max_duration_s and (
            not plan.list_missing()
            or seconds_since(max(each.killed_at for each in victims)) >= KILL_STALL_S
        ):
            break
        trial.push_share(min(0.9, seconds_since(started) / push_duration_s))
        for each in victims:
            each.check_worker()
        time.sleep(0.05)
    for each in victims:
        each.stop_worker()
    victims.append(finish_with_victims(trial, plan, stages))
    trial.await_coverage = AwaitCoverage(frozenset(plan.reached), frozenset(plan.struck))
    trial.expect(
        not plan.list_missing(), f"reached and never struck: {', '.join(plan.list_missing())}"
    )
    return sum(each.n_killed for each in victims)


def finish_with_victims(trial: FaultTrial, plan: KillPlan, stages: Sequence[str]) -> Victims:
    """Finish the workload with workers that still die at sites reached for the first time."""
    plan.is_ending = True
    victims = Victims(trial, plan, stages, Random(trial.rng.random()))
    victims.check_worker()
    with ThreadPoolExecutor(1) as thread:
        finished = thread.submit(trial.finish)
        while not finished.done():
            victims.check_worker()
            time.sleep(0.05)
        finished.result()
    victims.release_worker()
    return victims


FAULT = Fault(
    "kill -9 of a worker at an await between read and acknowledge", inject, duration_share=5.0
)
