"""The table of fault results in the docs."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from streams.partition_sink import PartitionSink
from tests.faults.await_points import AwaitCoverage, find_await_place
from tests.faults.report import write_table
from tests.faults.result import FaultResult

FAULT_RESULT = FaultResult(
    fault="one",
    seed=7,
    documents=40,
    n_injected=3,
    n_lost=0,
    n_duplicated=0,
    dead_letters=(2, 2),
    peak_rss_bytes=1,
    views_equal=True,
    elapsed_s=9.0,
)


def test_results_of_faults_not_rerun_are_kept(tmp_path: Path) -> None:
    page = tmp_path / "faults.md"
    page.write_text("before\n<!-- generated: faults -->\n<!-- end: faults -->\nafter\n")
    write_table(page, [FAULT_RESULT, replace(FAULT_RESULT, fault="two")])
    write_table(page, [replace(FAULT_RESULT, n_injected=5)])
    rows = [
        line.split(" | ")[:4]
        for line in page.read_text().splitlines()
        if line.startswith(("| one", "| two"))
    ]
    assert rows == [["| one", "7", "40", "5"], ["| two", "7", "40", "3"]]
    assert sum(line.startswith("| ---") for line in page.read_text().splitlines()) == 1
    assert page.read_text().startswith("before\n") and page.read_text().endswith("\nafter\n")


def test_fault_that_was_never_injected_fails() -> None:
    assert FAULT_RESULT.passed
    assert list(replace(FAULT_RESULT, n_injected=0).list_problems()) == ["it never struck"]


def test_share_of_struck_awaits_and_sites_never_struck_are_written(tmp_path: Path) -> None:
    page = tmp_path / "faults.md"
    page.write_text(
        "<!-- generated: faults -->\n<!-- end: faults -->\n"
        "<!-- generated: await coverage -->\n<!-- end: await coverage -->\n"
    )
    coverage = AwaitCoverage(
        reached=frozenset(
            {
                "chunk|sql/log/event_log.py:10 execute|sent",
                "chunk|sql/log/event_log.py:10 execute|received",
                "index|sql/log/event_log.py:10 execute|sent",
                "index|sql/ledger.py:7 fetch|sent",
                "chunk|streams/retry.py:3|sent",
            }
        ),
        struck=frozenset(
            {"chunk|sql/log/event_log.py:10 execute|sent", "chunk|streams/retry.py:3|sent"}
        ),
    )
    write_table(page, [replace(FAULT_RESULT, await_coverage=coverage)])
    text = page.read_text()
    assert "struck: 2 of 3 (67%)" in text and "struck: 2 of 5 (40%)" in text
    assert "- `sql/ledger.py:7`" in text and "- `sql/log/event_log.py:10`" not in text
    assert "- `runs`: the workload runs no queries" in text


def test_idle_wait_of_a_partition_is_no_await_point() -> None:
    async def wait() -> str | None:
        partition = object.__new__(PartitionSink)
        waiting = PartitionSink._wait_until(partition, asyncio.Event(), lambda: False)
        waiting.send(None)
        try:
            return find_await_place(waiting)
        finally:
            waiting.close()

    assert asyncio.run(wait()) is None
