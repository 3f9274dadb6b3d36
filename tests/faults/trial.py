"""One trial: a workload goes through the pipeline while something strikes it; afterwards it is
judged against a clean run of the same workload.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.fakes.openai_server import FakeOpenAI
from tests.faults.await_points import AwaitCoverage
from tests.faults.environment import FaultEnvironment
from tests.faults.relay import TcpRelay
from tests.faults.worker import CROSSED
from tests.faults.worker_fleet import WorkerFleet
from tests.support.cluster import collect_outcomes, tail_topic
from tests.support.eventually import eventually_blocking
from tests.support.workload import KafkaEvent, generate_histories, interleave

DeadLetterCodes = frozenset[tuple[str, str]]
"""(producer's event id, code)"""


@dataclass(frozen=True)
class Baseline:
    """What the workload comes to when nothing happens. `crossings` are the awaits that were made on
    the way.
    """

    tables: Mapping[str, Any]
    dead_letters: DeadLetterCodes
    await_points: Sequence[str]


@dataclass
class FaultTrial:
    """What a fault has at hand. `span_s` is how long it strikes."""

    fleet: WorkerFleet
    environment: FaultEnvironment
    baseline: Baseline
    rng: random.Random
    duration_s: float
    events: list[KafkaEvent]
    n_pushed: int = 0
    expected_dead_letters: set[tuple[str, str]] = field(default_factory=set)
    sent_ids: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    await_coverage: AwaitCoverage | None = None
    """Set by the fault that kills workers at awaits."""
    model_server: FakeOpenAI | None = None
    """The embedding server, where one is asked for."""
    model_relay: TcpRelay | None = None
    """Before it."""

    def push_next(self, count: int) -> None:
        """Send the next events of the workload."""
        self.push(self.events[self.n_pushed : self.n_pushed + count])
        self.n_pushed = min(len(self.events), self.n_pushed + count)

    def push_share(self, share: float) -> None:
        """Send until this share of the workload is out."""
        self.push_next(max(0, round(share * len(self.events)) - self.n_pushed))

    def push(self, events: Sequence[KafkaEvent]) -> None:
        if events:
            self.fleet.push(events)
            self.sent_ids += [headers["ce_id"] for _, headers, _ in events]

    def start_workers(self, count: int = 1, **how: Any) -> None:
        """So many workers, ready."""
        workers = [self.fleet.spawn_worker(**how) for _ in range(count)]
        eventually_blocking(lambda: all(worker.is_ready for worker in workers), what="workers")

    def finish(self) -> None:
        """The rest of the workload, by a worker that nothing happens to, until everything has
        settled.
        """
        self.push_share(1.0)
        if not self.fleet.list_running():
            self.start_workers()
        self.wait_for_outcomes(len(self.sent_ids))
        self.fleet.wait_until_idle()

    def wait_for_outcomes(self, count: int) -> dict[str, set[tuple[str, str]]]:
        """What was told of the events once so many have an outcome."""
        with tail_topic(self.fleet.settings, "outcomes") as outcomes:
            eventually_blocking(
                lambda: len(collect_outcomes(outcomes)),
                lambda n_outcomes: n_outcomes >= count,
                what=lambda: (
                    f"outcomes of {sorted(set(self.sent_ids) - collect_outcomes(outcomes).keys())[:20]}"
                ),
            )
            return collect_outcomes(outcomes)

    def interrupt_rounds(
        self, round_s: float, interrupt: Callable[[], None], *, at_most_s: float
    ) -> int:
        """Two workers are at work on the events of a round when something happens to what they work
        with, within so many seconds; then all are heard of.
        """
        self.start_workers(2)
        self.fleet.wait_for_members("anabranch.embed.g1", 2)
        rounds = self.get_rounds(round_s)
        for number in rounds:
            self.push_share((number + 1) / (len(rounds) + 1))
            time.sleep(self.rng.uniform(0.1, at_most_s))
            interrupt()
            self.wait_for_outcomes(len(self.sent_ids))
        return len(rounds)

    def get_rounds(self, round_s: float) -> Sequence[int]:
        """So many strikes fit, one at least."""
        return range(max(1, round(self.duration_s / round_s)))

    def expect(self, condition: bool, violation: str) -> None:
        """What must hold beside the common verdict."""
        if not condition:
            self.violations.append(violation)


@dataclass(frozen=True)
class Fault:
    """`strike` returns how often it struck. `share` is its part of the time; `served` asks for an
    embedding server in place of local vectors; `own` is what it breaks and must not share.
    """

    name: str
    inject: Callable[[FaultTrial], int]
    duration_share: float = 1.0
    needs_model_server: bool = False
    dedicated_services: frozenset[Literal["kafka", "postgres"]] = frozenset()


def make_workload(seed: int, documents: int) -> list[KafkaEvent]:
    return interleave(generate_histories(random.Random(seed), documents), random.Random(seed + 1))


def fetch_dead_letters(fleet: WorkerFleet) -> DeadLetterCodes:
    return frozenset(
        (str(event), str(code))
        for event, code in fleet.select("select producer_event_id, code from dead_letters")
    )


def run_baseline(fleet: WorkerFleet, events: Sequence[KafkaEvent]) -> Baseline:
    worker = fleet.spawn_worker(census=True)
    eventually_blocking(lambda: worker.is_ready, what="a worker")
    fleet.push(events)
    with tail_topic(fleet.settings, "outcomes") as outcomes:
        eventually_blocking(
            lambda: len(collect_outcomes(outcomes)),
            lambda n_outcomes: n_outcomes == len(events),
            what="every outcome of the clean run",
        )
    fleet.wait_until_idle()
    return Baseline(
        fleet.compute_checksum()["tables"],
        fetch_dead_letters(fleet),
        sorted(fleet.read_notes(CROSSED)),
    )


def seconds_since(start: float) -> float:
    return time.monotonic() - start
