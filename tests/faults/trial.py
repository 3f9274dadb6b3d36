"""One trial: a workload goes through the pipeline while something strikes it; afterwards it is judged against a clean run of the same workload."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.fakes.openai_server import FakeOpenAI
from tests.faults.crew import Crew
from tests.faults.ground import Ground
from tests.faults.wire import Wire
from tests.faults.worker import CROSSED
from tests.integration.cluster import tail, told, until
from tests.workload import Event, histories, shuffled

Buried = frozenset[tuple[str, str]]
"""(producer's event id, code)"""


@dataclass(frozen=True)
class Clean:
    """What the workload comes to when nothing happens. `crossings` are the awaits that were made on the way."""

    tables: Mapping[str, Any]
    buried: Buried
    crossings: Sequence[str]


@dataclass
class Trial:
    """What a fault has at hand. `span_s` is how long it strikes."""

    crew: Crew
    ground: Ground
    clean: Clean
    mood: random.Random
    span_s: float
    events: list[Event]
    pushed: int = 0
    also_buried: set[tuple[str, str]] = field(default_factory=set)
    sent: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    engine: FakeOpenAI | None = None
    """The embedding server, where one is asked for."""
    engine_wire: Wire | None = None
    """Before it."""

    def feed(self, count: int) -> None:
        """Send the next events of the workload."""
        self.send(self.events[self.pushed : self.pushed + count])
        self.pushed = min(len(self.events), self.pushed + count)

    def feed_to(self, share: float) -> None:
        """Send until this share of the workload is out."""
        self.feed(max(0, round(share * len(self.events)) - self.pushed))

    def send(self, events: Sequence[Event]) -> None:
        if events:
            self.crew.push(events)
            self.sent += [headers["ce_id"] for _, headers, _ in events]

    def staffed(self, count: int = 1, **how: Any) -> None:
        """So many workers, ready."""
        workers = [self.crew.employ(**how) for _ in range(count)]
        until(lambda: all(worker.ready for worker in workers), "workers")

    def finish(self) -> None:
        """The rest of the workload, by a worker that nothing happens to, until everything has settled."""
        self.feed_to(1.0)
        if not self.crew.alive():
            self.staffed()
        self.heard(len(self.sent))
        self.crew.await_quiet()

    def heard(self, count: int) -> dict[str, set[tuple[str, str]]]:
        """What was told of the events once so many have an outcome."""
        with tail(self.crew.settings, "outcomes") as outcomes:
            until(lambda: len(told(outcomes)) >= count, lambda: f"outcomes of {sorted(set(self.sent) - told(outcomes).keys())[:20]}")
            return told(outcomes)

    def interrupted(self, each_s: float, interrupt: Callable[[], None], *, at_most_s: float) -> int:
        """Two workers are at work on the events of a round when something happens to what they work with, within so many seconds; then all are heard of."""
        self.staffed(2)
        self.crew.await_members("anabranch.embed.g1", 2)
        rounds = self.rounds(each_s)
        for number in rounds:
            self.feed_to((number + 1) / (len(rounds) + 1))
            time.sleep(self.mood.uniform(0.1, at_most_s))
            interrupt()
            self.heard(len(self.sent))
        return len(rounds)

    def rounds(self, each_s: float) -> Sequence[int]:
        """So many strikes fit, one at least."""
        return range(max(1, round(self.span_s / each_s)))

    def expect(self, holds: bool, otherwise: str) -> None:
        """What must hold beside the common verdict."""
        if not holds:
            self.wrong.append(otherwise)


@dataclass(frozen=True)
class Fault:
    """`strike` returns how often it struck. `share` is its part of the time; `served` asks for an embedding server in place of local vectors; `own` is what it
    breaks and must not share."""

    name: str
    strike: Callable[[Trial], int]
    share: float = 1.0
    served: bool = False
    own: frozenset[Literal["kafka", "postgres"]] = frozenset()


def workload(seed: int, documents: int) -> list[Event]:
    return shuffled(histories(random.Random(seed), documents), random.Random(seed + 1))


def buried(crew: Crew) -> Buried:
    return frozenset((str(event), str(code)) for event, code in crew.select("select producer_event_id, code from dead_letters"))


def clean_run(crew: Crew, events: Sequence[Event]) -> Clean:
    worker = crew.employ(census=True)
    until(lambda: worker.ready, "a worker")
    crew.push(events)
    with tail(crew.settings, "outcomes") as outcomes:
        until(lambda: len(told(outcomes)) == len(events), "every outcome of the clean run")
    crew.await_quiet()
    return Clean(crew.checksum()["tables"], buried(crew), sorted(crew.noted(CROSSED)))


def passed(since: float) -> float:
    return time.monotonic() - since
