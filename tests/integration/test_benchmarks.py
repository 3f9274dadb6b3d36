"""Run each benchmark with minimal input and check that it reports its figures."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("arguments", "figures"),
    [
        (["pipeline_ratio", "--documents", "4"], {"ratio"}),
        (["rebuild_ratio", "--documents", "4"], {"ratio"}),
        (["search_latency", "--documents", "10", "--questions", "2"], {"ratio_p95", "reranked_ms"}),
        (["upload_latency", "--null", "--repeats", "2"], {"ms"}),
        (["request_trace"], {"upload", "query"}),
    ],
    ids=["pipeline", "rebuild", "search", "upload", "trace"],
)
def test_benchmark_prints_its_figures(arguments: list[str], figures: set[str]) -> None:
    name, *options = arguments
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", *options],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert figures <= json.loads(done.stdout).keys()
