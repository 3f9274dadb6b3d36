"""Short runs of the ratios beside the last committed ones, which `--write` replaces.

Both are the best of six runs: other work on the machine only lowers a ratio.

python -m benchmarks.ratios [--write]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COMMITTED = Path(__file__).with_name("results") / "ratios.json"
SHORT_RUNS = {
    "pipeline_ratio": ("--documents", "40"),
    "rebuild_ratio": ("--documents", "40"),
}
"""Options of each program. Its ratio is lower than that of a long run."""
LOWEST_SHARE = 0.5
"""A ratio below this share of the committed one is a regression; runs differ by less."""
RUNS = 6


@dataclass(frozen=True)
class RatioComparison:
    name: str
    ratio: float
    committed: float

    @property
    def is_regression(self) -> bool:
        return self.ratio < LOWEST_SHARE * self.committed

    def __str__(self) -> str:
        return f"{self.name} {self.ratio:.3f} (committed {self.committed:.3f})"


def run_program(name: str, *options: str) -> dict[str, Any]:
    """Return the figures of a benchmark. Raises RuntimeError with its output if it fails."""
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", *options],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"benchmarks.{name}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def measure_ratio(name: str) -> float:
    return float(run_program(name, *SHORT_RUNS[name])["ratio"])


def compare_ratio(name: str) -> RatioComparison:
    """Measure until a run is no regression, six times at most."""
    committed: Mapping[str, float] = json.loads(COMMITTED.read_text())
    best = RatioComparison(name, 0.0, committed[name])
    for _ in range(RUNS):
        best = RatioComparison(name, max(best.ratio, measure_ratio(name)), committed[name])
        if not best.is_regression:
            break
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="Replace the committed ratios.")
    if parser.parse_args().write:
        best = {
            name: round(max(measure_ratio(name) for _ in range(RUNS)), 3) for name in SHORT_RUNS
        }
        COMMITTED.write_text(json.dumps(best, indent=1) + "\n")
        return
    comparisons = [compare_ratio(name) for name in SHORT_RUNS]
    print(*comparisons, sep="\n")
    sys.exit(any(comparison.is_regression for comparison in comparisons))


if __name__ == "__main__":
    main()
