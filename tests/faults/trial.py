"""One trial: faults strike while a workload goes through the pipeline, and the result is compared
with a clean run of the same workload.
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
from tests.faults.worker import REACHED
from tests.faults.worker_fleet import WorkerFleet
from tests.support.cluster import collect_outcomes, tail_topic
from tests.support.eventually import eventually_blocking
from tests.support.workload import KafkaEvent, generate_histories, interleave, make_amended

DeadLetterCodes = frozenset[tuple[str, str]]
"""(producer's event id, code)"""


@dataclass(frozen=True)
class Baseline:
    """The result of the workload without a fault, and the await points that were reached."""

    tables: Mapping[str, Any]
    dead_letters: DeadLetterCodes
    await_points: Sequence[str]


@dataclass
class FaultTrial:
    """Fleet, workload and duration of one fault.

    `events` is its part of the workload, of which `n_pushed` are sent; `sent_ids` are the events of
    all faults of the trial.
    """

    fleet: WorkerFleet
    environment: FaultEnvironment
    baseline: Baseline
    rng: random.Random = field(default_factory=random.Random)
    duration_s: float = 0.0
    events: Sequence[KafkaEvent] = ()
    n_pushed: int = 0
    expected_dead_letters: set[tuple[str, str]] = field(default_factory=set)
    sent_ids: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    await_coverage: AwaitCoverage | None = None
    """Set by the fault that kills workers at awaits."""
    model_server: FakeOpenAI | None = None
    """The embedding server, for faults that need one."""
    model_relay: TcpRelay | None = None
    """The proxy in front of the embedding server."""

    def begin(self, events: Sequence[KafkaEvent], rng: random.Random, duration_s: float) -> None:
        """Set the part of the workload that the next fault strikes."""
        self.events, self.rng, self.duration_s = events, rng, duration_s
        self.n_pushed = 0

    def push_next(self, count: int) -> None:
        """Send the next events of the workload."""
        self.push(self.events[self.n_pushed : self.n_pushed + count])
        self.n_pushed = min(len(self.events), self.n_pushed + count)

    def push_share(self, share: float) -> None:
        """Send events until this share of the workload is sent."""
        self.push_next(max(0, round(share * len(self.events)) - self.n_pushed))

    def push(self, events: Sequence[KafkaEvent]) -> None:
        if events:
            self.fleet.push(events)
            self.sent_ids += [headers["ce_id"] for _, headers, _ in events]

    def start_workers(self, count: int = 1, **orders: Any) -> None:
        """Start workers and wait until they are ready."""
        workers = [self.fleet.spawn_worker(**orders) for _ in range(count)]
        eventually_blocking(lambda: all(worker.is_ready for worker in workers), what="workers")

    def finish(self) -> None:
        """Send the rest of the workload and wait until running workers have finished all of it."""
        self.push_share(1.0)
        if not self.fleet.list_running():
            self.start_workers()
        self.wait_for_outcomes(len(self.sent_ids))
        self.fleet.wait_until_idle()

    def wait_for_outcomes(self, count: int) -> dict[str, set[tuple[str, str]]]:
        """Wait until this many events have an outcome; return the outcomes by event."""
        with tail_topic(self.fleet.settings, "outcomes") as outcomes:

            def describe_missing() -> str:
                missing = set(self.sent_ids) - collect_outcomes(outcomes).keys()
                return f"outcomes of {sorted(missing)[:20]}"

            eventually_blocking(
                lambda: len(collect_outcomes(outcomes)),
                lambda n_outcomes: n_outcomes >= count,
                what=describe_missing,
            )
            return collect_outcomes(outcomes)

    def interrupt_rounds(
        self, round_s: float, interrupt: Callable[[], None], *, at_most_s: float
    ) -> int:
        """Run two workers, and interrupt a service within `at_most_s` of each round's events."""
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
        """Return as many rounds as fit into the duration, at least one."""
        return range(max(1, round(self.duration_s / round_s)))

    def expect(self, condition: bool, violation: str) -> None:
        """Record a violation unless the condition holds."""
        if not condition:
            self.violations.append(violation)


@dataclass(frozen=True)
class Fault:
    """`inject` returns how often the fault struck. `duration_share` scales its duration;
    `needs_model_server` replaces local vectors by an embedding server; `dedicated_services` are
    services that the fault interrupts, so that other trials cannot share them.
    """

    name: str
    inject: Callable[[FaultTrial], int]
    duration_share: float = 1.0
    needs_model_server: bool = False
    dedicated_services: frozenset[Literal["kafka", "postgres"]] = frozenset()


def make_workload(seed: int, n_documents: int) -> list[KafkaEvent]:
    """Return the histories of documents, interleaved; two of ten documents are amended too."""
    histories = generate_histories(random.Random(seed), n_documents)
    for ordinal, (name, events) in enumerate(histories.items()):
        # No titles: chunks keep the one that they were cut with, which depends on the timing.
        if ordinal % 10 == 1:
            events.append(make_amended(name, len(events), tags=["amended"]))
        elif ordinal % 10 == 2:
            events.insert(1, make_amended(name, len(events), metadata={"state": "amended"}))
    return interleave(histories, random.Random(seed + 1))


def fetch_dead_letters(fleet: WorkerFleet) -> DeadLetterCodes:
    return frozenset(
        (str(event), str(code))
        for event, code in fleet.select("select producer_event_id, code from dead_letters")
    )


def run_baseline(fleet: WorkerFleet, events: Sequence[KafkaEvent]) -> Baseline:
    worker = fleet.spawn_worker(notes_await_points=True)
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
        sorted(fleet.read_notes(REACHED)),
    )


def seconds_since(start: float) -> float:
    return time.monotonic() - start
