"""CPU of a document and of a question, relative to the commit before.

CPU of the program and of Postgres, since time depends on what else the machine does. Both trees run
at once, or the speed of a shared machine, which changes by half within a minute, would decide. Up
to six pairs of runs are summed. A tree with changes that are not committed is compared with HEAD, a
clean one with the parent of HEAD.

    python -m benchmarks.ratios
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

TREE = Path(__file__).parents[1]
DEAREST = 1.15
"""A higher cost relative to the commit before is a regression; equal trees differ by .05."""
RUNS = 6


def _sum_document_ms(figures: Mapping[str, Any]) -> float:
    costs = figures["many_at_once"]
    return float(costs["process_cpu_ms"] + costs["postgres_cpu_ms"])


def _sum_question_ms(figures: Mapping[str, Any]) -> float:
    return float(
        sum(
            run["api_cpu_ms"] + run["postgres_cpu_ms"]
            for rounds in figures["synthetic"].values()
            for run in rounds
        )
    )


SHORT_RUNS: Mapping[str, tuple[tuple[str, ...], Callable[[Mapping[str, Any]], float]]] = {
    "document_cost": (("--documents", "400", "--singles", "1"), _sum_document_ms),
    "question_rate": (
        ("--documents", "40", "--questions", "40", "--warm-up", "10", "--texts", "synthetic"),
        _sum_question_ms,
    ),
}
"""Options of each program, and what reads the CPU milliseconds from its figures."""


class CommitBeforeFails(RuntimeError):
    """The commit before does not run with these options or these packages."""


@dataclass(frozen=True)
class CostComparison:
    name: str
    cpu_ms: float
    cpu_ms_before: float

    @property
    def ratio(self) -> float:
        return self.cpu_ms / self.cpu_ms_before

    @property
    def is_regression(self) -> bool:
        return self.ratio > DEAREST

    def __str__(self) -> str:
        return f"{self.name} {self.cpu_ms:.2f} CPU-ms, before {self.cpu_ms_before:.2f}"


def run_program(name: str, *options: str, tree: Path = TREE) -> dict[str, Any]:
    """Return the figures of a benchmark. Raises RuntimeError with its output if it fails."""
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", *options],
        # The modules of the folder come before the installed ones.
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"benchmarks.{name}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def run_git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=TREE, capture_output=True, check=True).stdout


def extract_commit_before(folder: Path) -> str:
    """Write the tree of the commit to compare with; return its name.

    Raises CalledProcessError in a folder without this history, as of a shallow clone.
    """
    is_changed = bool(run_git("status", "--porcelain", "--untracked-files=no").strip())
    commit = run_git("rev-parse", "--short", "HEAD" if is_changed else "HEAD^").decode().strip()
    with tarfile.open(fileobj=BytesIO(run_git("archive", commit))) as archive:
        archive.extractall(folder, filter="data")
    return commit


def compare_cost(name: str, tree_before: Path) -> CostComparison:
    """Measure both trees at once until the new one is no regression, six times at most.

    Raises CommitBeforeFails, and RuntimeError if the new tree fails.
    """
    options, read_ms = SHORT_RUNS[name]
    cpu_ms = cpu_ms_before = 0.0
    for run in range(1, RUNS + 1):
        with ThreadPoolExecutor() as executor:
            before = executor.submit(run_program, name, *options, tree=tree_before)
            now = executor.submit(run_program, name, *options)
        if error := before.exception():
            raise CommitBeforeFails(str(error)) from error
        cpu_ms += read_ms(now.result())
        cpu_ms_before += read_ms(before.result())
        mean = CostComparison(name, cpu_ms / run, cpu_ms_before / run)
        if not mean.is_regression:
            break
    return mean


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="anabranch-before-") as folder:
        commit = extract_commit_before(Path(folder))
        comparisons = [compare_cost(name, Path(folder)) for name in SHORT_RUNS]
    print(f"before: {commit}", *comparisons, sep="\n")
    sys.exit(any(comparison.is_regression for comparison in comparisons))


if __name__ == "__main__":
    main()
