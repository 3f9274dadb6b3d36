from __future__ import annotations

import random

import pytest

from evaluation.text_metrics import (
    cell_recall,
    character_error_rate,
    compute_pass_rate,
    list_cell_texts,
    parse_tables,
    passes_check,
    strip_markdown,
    word_error_rate,
    word_f1,
)

TABLE = (
    "| Model | Tokens | Share |\n|---|---:|---|\n| Web | 3.71T | 95 % |\n| Code | 83.0B | 2 % |\n"
)


def levenshtein_distance(a: str, b: str) -> int:
    row = list(range(len(b) + 1))
    for i, left in enumerate(a, 1):
        above, row[0] = row[0], i
        for j, right in enumerate(b, 1):
            above, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, above + (left != right))
    return row[-1]


@pytest.mark.parametrize("seed", range(5))
def test_error_rate_is_edit_distance_over_reference_length(seed: int) -> None:
    dice = random.Random(seed)
    a, b = ("".join(dice.choices("abc ", k=dice.randint(1, 40))) for _ in range(2))
    assert character_error_rate(a, b) == pytest.approx(levenshtein_distance(a, b) / len(a))


def test_error_rates_of_empty_texts() -> None:
    assert (
        character_error_rate("", "") == 0.0
        and character_error_rate("", "x") == 1.0
        and character_error_rate("abc", "") == 1.0
    )
    assert word_error_rate("the quick fox", "the quick brown fox") == pytest.approx(1 / 3)


def test_character_error_rate_handles_a_whole_book() -> None:
    book = " ".join(str(n * 7919 % 10_007) for n in range(40_000))
    assert len(book) > 180_000
    assert character_error_rate(book, book[:100] + "x" + book[100:]) == pytest.approx(1 / len(book))


@pytest.mark.parametrize(
    ("markdown", "text"),
    [
        ("# Title\n\nSome *strong* and `code` text.", "Title Some strong and code text."),
        ("- one\n- two", "one two"),
        ("[a link](https://example.org) and ![image](x.png)", "a link and image"),
        ("| A | B |\n|---|---|\n| 1 | 2 |", "A B 1 2"),
        (r"3 \* 4 is 12 and a \| bar", "3 * 4 is 12 and a | bar"),
        ("<!-- page 3 --><b>bold</b> &amp; more", "bold & more"),
        ("snake_case stays, 5 - 3 too", "snake_case stays, 5 - 3 too"),
    ],
)
def test_markdown_syntax_is_stripped_before_scoring(markdown: str, text: str) -> None:
    assert strip_markdown(markdown) == text


def test_word_f1_ignores_order_but_not_counts() -> None:
    assert word_f1("a b c", "c a b") == 1.0 and word_f1("a a b", "a b") == pytest.approx(0.8)
    assert word_f1("", "") == 1.0 and word_f1("a", "") == 0.0


def test_cell_recall_matches_each_cell_once() -> None:
    assert cell_recall(["1", "1", "x"], ["1", "X"]) == pytest.approx(2 / 3)
    assert cell_recall(["", "1 000"], ["1000"]) == 1.0 and cell_recall([], ["1"]) == 1.0


def test_cells_of_markdown_and_html_tables_are_extracted() -> None:
    html = "<table><tr><th>A</th></tr><tr><td>b &lt; c</td></tr></table>"
    assert (
        list_cell_texts(TABLE)[:4] == ["Model", "Tokens", "Share", "Web"]
        and len(parse_tables(TABLE + "\ntext\n\n" + TABLE)) == 2
    )
    assert list_cell_texts(html) == ["A", "b &lt; c"]


@pytest.mark.parametrize(
    ("check", "passed"),
    [
        ({"cell": "3.71T"}, True),
        ({"cell": "3.71T", "left": "Web", "right": "95 %", "down": "83.0B", "up": "Tokens"}, True),
        ({"cell": "83.0B", "top_heading": "Tokens", "left_heading": "Code"}, True),
        ({"cell": "83.0B", "up": "Tokens"}, False),
        ({"cell": "83.0B", "top_heading": "Share"}, False),
        ({"cell": "nowhere"}, False),
    ],
)
def test_table_check_inspects_neighboring_cells(check: dict[str, str], passed: bool) -> None:
    assert passes_check({"type": "table", **check}, TABLE) is passed


@pytest.mark.parametrize(
    ("check", "passed"),
    [
        ({"type": "present", "text": "Master Bath"}, True),
        ({"type": "present", "text": "master bath"}, False),
        ({"type": "present", "text": "master bath", "case_sensitive": False}, True),
        ({"type": "present", "text": "Mastor Bath", "max_diffs": 1}, True),
        ({"type": "present", "text": "Mastor Bith", "max_diffs": 1}, False),
        ({"type": "present", "text": "Kitchen", "first_n": 10}, False),
        ({"type": "present", "text": "Kitchen", "last_n": 10}, True),
        ({"type": "absent", "text": "Garage"}, True),
        ({"type": "absent", "text": "Kitchen"}, False),
        ({"type": "order", "before": "Master", "after": "Kitchen"}, True),
        ({"type": "order", "before": "Kitchen", "after": "Master"}, False),
    ],
)
def test_text_check_passes_when_text_is_present(check: dict[str, object], passed: bool) -> None:
    assert passes_check(check, "# Plan\n\nMaster Bath and Kitchen") is passed


def test_unknown_check_type_raises() -> None:
    with pytest.raises(ValueError, match="'math'"):
        compute_pass_rate([{"type": "math"}], "x")
