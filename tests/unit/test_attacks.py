"""The list of attacks names tests that exist, and its table counts what they report."""

from __future__ import annotations

from xml.etree import ElementTree

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
