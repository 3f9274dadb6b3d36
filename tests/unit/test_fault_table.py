"""The table of faults in its page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.faults.table import write
from tests.faults.verdict import Row

ROW = Row(fault="one", seed=7, documents=40, struck=3, lost=0, doubled=0, buried=(2, 2), peak_bytes=1, equal=True, seconds=9.0)


def test_rows_of_faults_that_were_not_tried_again_stay(tmp_path: Path) -> None:
    page = tmp_path / "faults.md"
    page.write_text("before\n<!-- generated: faults -->\n<!-- end: faults -->\nafter\n")
    write(page, [ROW, replace(ROW, fault="two")])
    write(page, [replace(ROW, struck=5)])
    told = [line.split(" | ")[:4] for line in page.read_text().splitlines() if line.startswith(("| one", "| two"))]
    assert told == [["| one", "7", "40", "5"], ["| two", "7", "40", "3"]]
    assert sum(line.startswith("| ---") for line in page.read_text().splitlines()) == 1
    assert page.read_text().startswith("before\n") and page.read_text().endswith("\nafter\n")


def test_a_fault_that_never_struck_does_not_hold() -> None:
    assert ROW.holds
    assert list(replace(ROW, struck=0).problems()) == ["it never struck"]
