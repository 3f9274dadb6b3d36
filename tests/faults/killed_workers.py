"""`kill -9` at every await between reading an event and acknowledging it: each stage's worker dies at one of them, and the next at another one."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass

from processors import STAGES
from tests.faults.trial import Fault, Trial, passed
from tests.integration.cluster import Worker

QUIET = ("control", "announce", "erase", "runs", "judgements")
"""Stages that hear nothing of documents."""
MISSED_AFTER_S = 15.0
"""A place that is not come by is given up."""
FIRST_WITHIN_S = 60.0
AT_MOST = 3.0
"""Times the span: so long it goes on for stages that were not struck yet."""


@dataclass
class Victims:
    """One stage's workers, one after the other; `places` are those to die at still."""

    trial: Trial
    stage: str
    places: list[str]
    worker: Worker | None = None
    since: float = 0.0
    struck: int = 0

    @property
    def over(self) -> bool:
        return self.worker is None and not self.places

    def look(self) -> None:
        if self.worker is None:
            self._next()
        elif self.worker.process.poll() is not None:
            self.struck += 1
            self.worker = None
        elif passed(self.since) > MISSED_AFTER_S:
            self.release()

    def release(self) -> None:
        if self.worker is not None and self.worker.process.poll() is None:
            self.trial.crew.dismiss(self.worker, signal.SIGKILL)
        self.worker = None

    def _next(self) -> None:
        if self.places:
            self.worker, self.since = self.trial.crew.employ([self.stage], die_at=self.places.pop()), time.monotonic()
            self.trial.crew.ended.append(self.worker)


def strike(trial: Trial) -> int:
    crossings = list(trial.clean.crossings)
    trial.mood.shuffle(crossings)
    trial.staffed(stages=QUIET)
    stages = [stage.name for stage in STAGES if stage.name not in QUIET]
    victims = [Victims(trial, stage, [place for place in crossings if place.startswith(f"{stage}|")]) for stage in stages]
    started = time.monotonic()
    while not late(victims, passed(started), trial.span_s) and not over(victims, passed(started) >= trial.span_s):
        trial.feed_to(min(0.9, passed(started) / trial.span_s))
        for each in victims:
            each.look()
        time.sleep(0.05)
    for each in victims:
        each.release()
    trial.crew.employ(stages)
    return sum(each.struck for each in victims)


def late(victims: Sequence[Victims], seconds: float, span_s: float) -> bool:
    """On a busy machine the first worker may die only after all the time there is."""
    return seconds >= (AT_MOST * span_s if any(each.struck for each in victims) else max(AT_MOST * span_s, FIRST_WITHIN_S))


def over(victims: Sequence[Victims], late: bool) -> bool:
    return all(each.over for each in victims) or (late and all(each.struck or each.over for each in victims))


FAULT = Fault("kill -9 of a worker at an await between read and acknowledge", strike, share=5.0)
