"""The table of fault results in the docs.

The list of attacks names tests that exist, and its table counts what they report.

The wait that all tests share.

Helpers are in modules of their own: no test file depends on another.
"""

from __future__ import annotations

import ast
import asyncio
from dataclasses import replace
from itertools import count
from pathlib import Path
from xml.etree import ElementTree

import pytest

from streams.partition_sink import PartitionSink
from tests.attacks import (
    ATTACKS,
    BEGIN,
    END,
    ROOT,
    SECURITY_PAGE,
    AttackResult,
    _collect_results,
    format_table,
)
from tests.faults.await_points import AwaitCoverage, find_await_place
from tests.faults.report import write_table
from tests.faults.result import FaultResult
from tests.support.eventually import eventually, eventually_blocking


def test_every_attack_lists_existing_test_files() -> None:
    assert [
        file for files in ATTACKS.values() for file in files if not (ROOT / file).is_file()
    ] == []


def test_security_page_table_lists_every_attack() -> None:
    written = SECURITY_PAGE.read_text().partition(BEGIN)[2].partition(END)[0]
    assert [attack for attack in ATTACKS if f"| {attack} |" not in written] == []


def test_failed_attempts_count_as_not_repelled() -> None:
    report = """<testsuite>
      <testcase file="tests/a.py" name="one">
        <properties><property name="attempts" value="40"/></properties>
      </testcase>
      <testcase file="tests/a.py" name="two"><failure/></testcase>
      <testcase file="tests/b.py" name="three"><skipped/></testcase>
    </testsuite>"""
    results = _collect_results(ElementTree.fromstring(report).iter("testcase"))
    assert results == {"tests/a.py": AttackResult(41, 40, 0), "tests/b.py": AttackResult(0, 0, 1)}


def test_attack_table_sums_its_test_files() -> None:
    attack, files = next(iter(ATTACKS.items()))
    assert f"| {attack} | 2,000 | 1,999 |" in format_table(
        {files[0]: AttackResult(1999, 1999), files[1]: AttackResult(1, 0)}
    )


async def test_value_is_returned_once_it_is_accepted() -> None:
    numbers = count()
    assert await eventually(lambda: next(numbers), lambda number: number >= 3) == 3
    assert eventually_blocking(lambda: next(numbers), lambda number: number >= 6) == 6


async def test_wait_lasts_while_the_value_changes() -> None:
    numbers = count()
    assert await eventually(lambda: next(numbers), lambda n: n >= 12, stall_s=0.2) == 12


async def test_stalled_wait_fails_with_the_last_value() -> None:
    with pytest.raises(AssertionError, match=r"for herons: no change in 0\.05 s.*Last value: 7"):
        await eventually(lambda: 7, lambda value: value == 8, what="herons", stall_s=0.05)
    with pytest.raises(AssertionError, match=r"for storks.*Last value: False"):
        eventually_blocking(lambda: False, what=lambda: "storks", stall_s=0.05)


TESTS = Path(__file__).parents[1]
MODULES = sorted(TESTS.rglob("*.py"))


def list_imported_test_modules(source: str) -> list[str]:
    """List the test files and conftests that the source imports from."""
    imported = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            imported += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            imported += [alias.name for alias in node.names]
    return [
        name
        for name in imported
        if name.startswith("tests.")
        and any(part == "conftest" or part.startswith("test_") for part in name.split(".")[:-1])
    ]


def test_no_module_imports_from_a_test_file() -> None:
    offenders = {
        str(module.relative_to(TESTS)): found
        for module in MODULES
        if (found := list_imported_test_modules(module.read_text(encoding="utf-8")))
    }
    assert offenders == {}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from tests.unit.test_api import make", ["tests.unit.test_api.make"]),
        ("from tests.journey.conftest import run", ["tests.journey.conftest.run"]),
        ("from tests.support.pipeline import run", []),
    ],
)
def test_import_from_a_test_file_is_found(source: str, found: list[str]) -> None:
    assert list_imported_test_modules(source) == found


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
                "chunk|streams/publisher.py:3|sent",
            }
        ),
        struck=frozenset(
            {"chunk|sql/log/event_log.py:10 execute|sent", "chunk|streams/publisher.py:3|sent"}
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
