"""The list of attacks names tests that exist, and its table counts what they report."""

from __future__ import annotations

from xml.etree import ElementTree

from tests.attacks import ATTACKS, BEGIN, END, PAGE, ROOT, Result, _read, table


def test_every_attack_has_tests_that_exist() -> None:
    assert [file for files in ATTACKS.values() for file in files if not (ROOT / file).is_file()] == []


def test_page_has_the_table_of_every_attack() -> None:
    written = PAGE.read_text().partition(BEGIN)[2].partition(END)[0]
    assert [attack for attack in ATTACKS if f"| {attack} |" not in written] == []


def test_failed_attempts_are_counted_as_not_held() -> None:
    report = """<testsuite>
      <testcase file="tests/a.py" name="one"><properties><property name="attempts" value="40"/></properties></testcase>
      <testcase file="tests/a.py" name="two"><failure/></testcase>
      <testcase file="tests/b.py" name="three"><skipped/></testcase>
    </testsuite>"""
    results = _read(ElementTree.fromstring(report).iter("testcase"))
    assert results == {"tests/a.py": Result(41, 40, 0), "tests/b.py": Result(0, 0, 1)}


def test_table_adds_up_the_files_of_an_attack() -> None:
    attack, files = next(iter(ATTACKS.items()))
    assert f"| {attack} | 2,000 | 1,999 |" in table({files[0]: Result(1999, 1999), files[1]: Result(1, 0)})
