"""The result of a trial: a row of the table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.faults.await_points import AwaitCoverage
from tests.faults.trial import FaultTrial, fetch_dead_letters

MAX_RSS_BYTES = 320 * 1024 * 1024
"""For one worker, including the interpreter and its libraries. An idle worker takes about 150 MiB,
and its queues may hold 48 MiB per stage.
"""


@dataclass(frozen=True)
class FaultResult:
    """`n_lost` counts events without an outcome, `n_duplicated` outcomes beyond the first;
    `dead_letters` is the number found and the number expected. `violations` are other failures.
    """

    fault: str
    seed: int
    documents: int
    n_injected: int
    n_lost: int
    n_duplicated: int
    dead_letters: tuple[int, int]
    peak_rss_bytes: int
    views_equal: bool
    elapsed_s: float
    violations: tuple[str, ...] = ()
    await_coverage: AwaitCoverage | None = None
    completed: bool = True
    """False if the trial was aborted: `violations` says where, and nothing else is known."""

    @property
    def passed(self) -> bool:
        return not list(self.list_problems())

    def list_problems(self) -> Iterator[str]:
        if not self.completed:
            yield from self.violations
            return
        if not self.n_injected:
            yield "it never struck"
        if self.n_lost:
            yield f"{self.n_lost} events have no outcome"
        if self.n_duplicated:
            yield f"{self.n_duplicated} outcomes too many"
        if self.dead_letters[0] != self.dead_letters[1]:
            yield f"{self.dead_letters[0]} events dead-lettered, {self.dead_letters[1]} expected"
        if self.peak_rss_bytes > MAX_RSS_BYTES:
            yield f"a worker took {self.peak_rss_bytes:,} bytes"
        if not self.views_equal:
            yield "the views differ from the clean run's"
        yield from self.violations


def make_aborted_result(seed: int, documents: int, elapsed_s: float, violation: str) -> FaultResult:
    return FaultResult(
        "",
        seed,
        documents,
        0,
        0,
        0,
        (0, 0),
        0,
        views_equal=False,
        elapsed_s=elapsed_s,
        violations=(violation,),
        completed=False,
    )


def evaluate_trial(trial: FaultTrial, seed: int, documents: int, elapsed_s: float) -> FaultResult:
    """Compare a finished trial with its baseline. The caller sets `fault` and `n_injected`."""
    outcomes_by_event = trial.wait_for_outcomes(len(trial.sent_ids))
    sent, outcome_counts = (
        set(trial.sent_ids),
        {event: len(outcomes) for event, outcomes in outcomes_by_event.items()},
    )
    dead_letters, expected = (
        fetch_dead_letters(trial.fleet),
        trial.baseline.dead_letters | trial.expected_dead_letters,
    )
    trial.expect(
        len(outcome_counts.keys() - sent) == 0,
        f"outcomes of events that were never sent: {sorted(outcome_counts.keys() - sent)[:5]}",
    )
    trial.expect(
        dead_letters == expected,
        f"unexpected or missing dead letters: {sorted(dead_letters ^ expected)[:5]}",
    )
    for worker in trial.fleet.find_unexpected_exits():
        trial.expect(
            False, f"a worker exited by itself: {worker.errors.read_text(errors='replace')[-1500:]}"
        )
    tables = trial.fleet.compute_checksum()["tables"]
    different = [name for name, sums in trial.baseline.tables.items() if tables[name] != sums]
    trial.expect(
        not different,
        "; ".join(
            f"{name} has {tables[name]['rows']} rows, of {trial.baseline.tables[name]['rows']}"
            for name in different
        ),
    )
    return FaultResult(
        fault="",
        seed=seed,
        documents=documents,
        n_injected=0,
        n_lost=len(sent - outcome_counts.keys()),
        n_duplicated=sum(count - 1 for count in outcome_counts.values()),
        dead_letters=(len(dead_letters), len(expected)),
        peak_rss_bytes=trial.fleet.peak_rss_bytes,
        views_equal=not different,
        elapsed_s=elapsed_s,
        violations=tuple(trial.violations),
        await_coverage=trial.await_coverage,
    )
