"""What a trial came to: a row of the table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.faults.trial import Trial, buried

BOUND_BYTES = 320 * 1024 * 1024
"""Of RAM for one worker, the interpreter and its libraries included: a worker with nothing to do takes about 150 MiB, and its queues may hold 48 MiB a stage."""


@dataclass(frozen=True)
class Row:
    """`lost` counts events without an outcome, `doubled` outcomes beyond the first; `buried` is what was and what should have been. `wrong` says what else."""

    fault: str
    seed: int
    documents: int
    struck: int
    lost: int
    doubled: int
    buried: tuple[int, int]
    peak_bytes: int
    equal: bool
    seconds: float
    wrong: tuple[str, ...] = ()
    whole: bool = True
    """False where the trial broke off: `wrong` says where, and nothing else is known."""

    @property
    def holds(self) -> bool:
        return not list(self.problems())

    def problems(self) -> Iterator[str]:
        if not self.whole:
            yield from self.wrong
            return
        if not self.struck:
            yield "it never struck"
        if self.lost:
            yield f"{self.lost} events have no outcome"
        if self.doubled:
            yield f"{self.doubled} outcomes too many"
        if self.buried[0] != self.buried[1]:
            yield f"{self.buried[0]} events buried, {self.buried[1]} expected"
        if self.peak_bytes > BOUND_BYTES:
            yield f"a worker took {self.peak_bytes:,} bytes"
        if not self.equal:
            yield "the views differ from the clean run's"
        yield from self.wrong


def broken_off(fault: str, seed: int, documents: int, seconds: float, why: str) -> Row:
    return Row(fault, seed, documents, 0, 0, 0, (0, 0), 0, equal=False, seconds=seconds, wrong=(why,), whole=False)


def judged(trial: Trial, fault: str, seed: int, documents: int, struck: int, seconds: float) -> Row:
    said = trial.heard(len(trial.sent))
    sent, told_of = set(trial.sent), {event: len(outcomes) for event, outcomes in said.items()}
    found, expected = buried(trial.crew), trial.clean.buried | trial.also_buried
    trial.expect(len(told_of.keys() - sent) == 0, f"outcomes of events that nobody sent: {sorted(told_of.keys() - sent)[:5]}")
    trial.expect(found == expected, f"buried otherwise than expected: {sorted(found ^ expected)[:5]}")
    for worker in trial.crew.deserters():
        trial.expect(False, f"a worker ended by itself: {worker.errors.read_text(errors='replace')[-1500:]}")
    tables = trial.crew.checksum()["tables"]
    different = [name for name, sums in trial.clean.tables.items() if tables[name] != sums]
    trial.expect(not different, "; ".join(f"{name} has {tables[name]['rows']} rows, of {trial.clean.tables[name]['rows']}" for name in different))
    return Row(
        fault=fault,
        seed=seed,
        documents=documents,
        struck=struck,
        lost=len(sent - told_of.keys()),
        doubled=sum(count - 1 for count in told_of.values()),
        buried=(len(found), len(expected)),
        peak_bytes=trial.crew.peak_bytes,
        equal=not different,
        seconds=seconds,
        wrong=tuple(trial.wrong),
    )
