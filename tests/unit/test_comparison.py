"""Two rankings against each other: by place, by judgements, and whether a gate holds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pydantic import ValidationError

from evaluation.agreement import Found, overlap, pairs
from evaluation.comparing import read_golden
from evaluation.comparison import Answered, Judgements, Replayed, Unasked, comparison_report
from evaluation.condensed import first_relevant, graded_ndcg, judged_share, judged_units
from evaluation.gate import Gain, Gate, read_gate, reasons_against
from evaluation.places import DocumentPlaces, JudgedPlace, ParentPlace, graded, located
from schemas.errors import InvalidRequest

DOCUMENT, OTHER = UUID(int=1000), UUID(int=2000)
TEXT = "# Birds\n\nThe heron stands still.\n\nThe stork  builds a large nest of sticks.\n\nThe heron stands still."
PARENTS = [ParentPlace(UUID(int=11), 0, 33), ParentPlace(UUID(int=12), 33, 76), ParentPlace(UUID(int=13), 76, len(TEXT))]
SHOWN = DocumentPlaces(DOCUMENT, 1, TEXT, PARENTS)


def place(start: int | None, quote: str | None, *, end: int | None = None, grade: int = 1, revision: int | None = 1) -> JudgedPlace:
    return JudgedPlace(DOCUMENT, revision, start, end if end is not None else (start or 0) + len(quote or ""), quote, grade)


def found(parent: int, start: int, end: int, document: UUID = DOCUMENT) -> Found:
    return Found(UUID(int=parent), document, start, end)


@pytest.mark.parametrize(
    ("judged", "expected"),
    [
        (place(9, "The heron stands still."), "The heron stands still."),
        (place(70, "The heron stands still."), "The heron stands still."),
        (place(0, "the stork builds a LARGE nest"), "The stork  builds a large nest"),
        (place(0, "No bird of this kind is told of anywhere."), None),
        (place(9, None, end=32), "The heron stands still."),
        (place(9, None, end=32, revision=2), None),
        (place(9, None, end=3200), None),
    ],
)
def test_a_quote_is_found_where_it_stands_nearest_or_nearly(judged: JudgedPlace, expected: str | None) -> None:
    span = located(judged, SHOWN)
    assert (TEXT[slice(*span)] if span else None) == expected


def test_of_equal_quotes_the_nearest_is_meant() -> None:
    assert located(place(70, "The heron stands still."), SHOWN) == (TEXT.rindex("The heron"), len(TEXT))


def test_a_quote_that_another_parser_read_a_little_otherwise_falls_on_the_same_parent() -> None:
    assert graded([place(0, "The stork buiIds a large nest of sticks")], {DOCUMENT: SHOWN}) == ({UUID(int=12): 1}, 1)


def test_a_place_without_a_quote_means_nothing_in_a_text_that_was_made_differently() -> None:
    assert located(place(9, None, end=32), replace(SHOWN, as_judged=False)) is None


def test_judgements_fall_on_the_parent_that_holds_most_of_them_and_the_highest_grade_counts() -> None:
    judgements = [
        place(9, "The heron stands still.", grade=1),
        place(10, None, end=34, grade=3),
        JudgedPlace(OTHER, None, None, None, None, 2),
        place(0, "No such"),
    ]
    assert graded(judgements, {DOCUMENT: SHOWN}) == ({UUID(int=11): 3}, 2)
    whole = DocumentPlaces(OTHER, 1, "", [])
    assert graded(judgements, {DOCUMENT: SHOWN, OTHER: whole}) == ({UUID(int=11): 3, OTHER: 2}, 3)


def test_passages_that_are_cut_differently_are_the_same_where_half_of_the_shorter_lies_in_the_other() -> None:
    large, first, second, elsewhere = found(1, 0, 100), found(2, 0, 60), found(3, 60, 120), found(4, 0, 100, OTHER)
    assert pairs([large, elsewhere], [second, first, elsewhere]) == [(0, 1), (1, 2)]
    assert overlap([large], [second]) == 1.0 and overlap([large], [elsewhere]) == 0.0
    assert overlap([], []) == 1.0 and overlap([large], []) == 0.0
    assert overlap([large, elsewhere], [large]) == 0.5


def test_passages_of_texts_that_were_made_differently_are_compared_by_their_words() -> None:
    one, same, other = (replace(found(1, 0, 9), words=frozenset(words.split())) for words in ("the heron stands", "the heron stands still", "a stork"))
    assert overlap([one], [same]) == 1.0 and overlap([one], [other]) == 0.0


def test_what_nobody_judged_is_left_out_of_a_ranking() -> None:
    grades = {UUID(int=1): 3, UUID(int=2): 0, OTHER: 1}
    ranked = [found(9, 0, 1), found(2, 0, 1), found(8, 0, 1), found(1, 0, 1), found(7, 0, 1, OTHER), found(6, 0, 1, OTHER)]
    units = judged_units(ranked, grades)
    assert units == [UUID(int=2), UUID(int=1), OTHER]
    assert first_relevant(10, units, grades) == 0.5
    assert graded_ndcg(10, units, grades) == pytest.approx((3 / 1.5849625 + 1 / 2) / (3 + 1 / 1.5849625))
    assert graded_ndcg(10, [UUID(int=1), OTHER], grades) == pytest.approx(1.0)
    assert judged_share(ranked, grades) == pytest.approx(4 / 6)


def answered(order: Sequence[int], grades: Mapping[int, int], *, refused: bool = False, ms: float = 10.0) -> Answered:
    return Answered([found(number, 100 * number, 100 * number + 90) for number in order], refused, ms, grades={UUID(int=n): g for n, g in grades.items()})


UNASKED = Unasked("q", "X", "y")


def report(*questions: Replayed, mapped: tuple[int, int] = (10, 10), failed: Mapping[str, Unasked] | None = None) -> dict[str, Any]:
    judgements = Judgements(10, {"A": mapped[0], "B": mapped[1]})
    return comparison_report({"A": "g1", "B": "g2"}, questions, judgements, {"A": 5, "B": 7}, failed or {})


def questions(count: int, a: Sequence[int], b: Sequence[int], grades: Mapping[int, int] | None = None) -> list[Replayed]:
    judged = {1: 3} if grades is None else grades
    return [Replayed(f"q{number}", f"question {number}", "golden", answered(a, judged), answered(b, judged)) for number in range(count)]


def test_a_comparison_with_itself_differs_in_nothing() -> None:
    same = report(*questions(30, [2, 1], [2, 1]))
    assert same["overlap@10"] == 1.0 and same["worst"] == [] and same["metrics"]["A"] == same["metrics"]["B"]
    assert {name: (interval["low"], interval["high"]) for name, interval in same["intervals"].items() if name != "overlap@10"} == dict.fromkeys(
        ("ndcg@10", "mrr@10", "refusals", "latency_ms"), (0.0, 0.0)
    )
    assert same["rank_moves"] == {"same": 60, "up": 0, "down": 0, "left": 0, "mean_distance": 0.0}


def test_a_report_says_what_moved_and_names_the_worst_ten() -> None:
    lost = Replayed("lost", "lost question", "real", answered([1, 2], {1: 3}), answered([3, 2, 1], {1: 3}, refused=True, ms=30.0), UUID(int=5))
    told = report(*questions(12, [2, 1, 3], [1, 2, 4], {1: 3, 2: 0}), lost)
    assert told["queries"] == told["judged_queries"] == 13 and told["sources"] == {"golden": 12, "real": 1, "feedback": 0}
    assert told["rank_moves"] == {"same": 13 - 12, "up": 12, "down": 12 + 1, "left": 12, "mean_distance": 1.0}
    assert told["metrics"]["B"]["mrr@10"] > told["metrics"]["A"]["mrr@10"]
    assert told["intervals"]["ndcg@10"]["low"] > 0 and told["refusals"] == {"A": 0.0, "B": pytest.approx(1 / 13, abs=1e-4)}
    assert len(told["worst"]) == 10 and told["cost"]["B"]["index_bytes"] == 7
    worst = told["worst"][0]
    assert (worst["query"], worst["source"], worst["run_id"], worst["overlap@10"]) == ("lost question", "real", str(UUID(int=5)), 0.6667)
    assert worst["refused"] == {"A": False, "B": True} and worst["ndcg@10"] == worst["mrr@10"] == {"A": 1.0, "B": 1.0}
    json.dumps(told)


def test_a_question_that_lost_its_judged_passage_is_the_worst() -> None:
    gone = Replayed("gone", "gone", "golden", answered([1], {1: 3}), answered([2], {1: 3}))
    told = report(*questions(12, [2, 1], [2, 3]), gone)
    assert told["worst"][0]["query"] in ("gone", "question 0") and told["worst"][0]["ndcg@10"]["B"] == 0.0


def test_the_default_gate_holds_for_a_gain_beyond_chance_and_not_for_the_same_again() -> None:
    grades = {1: 3, 2: 0}
    assert reasons_against(Gate(), report(*questions(30, [2, 1], [1, 2], grades))) == []
    [reason] = reasons_against(Gate(), report(*questions(30, [2, 1], [2, 1], grades)))
    assert reason.startswith("no gain in ndcg@10: +0.0000 [+0.0000, +0.0000]")
    assert reasons_against(Gate(gain=None), report(*questions(30, [2, 1], [2, 1], grades))) == []


@pytest.mark.parametrize(
    ("gate", "told", "expected"),
    [
        (Gate(), report(*questions(5, [2, 1], [1, 2], {1: 3, 2: 0})), ["5 questions were compared, 20", "5 questions are judged in both, 10"]),
        (Gate(gain=None), report(*questions(30, [1, 2], [2, 1], {1: 3, 2: 0})), ["ndcg@10 may have lost: -0.3691", "mrr@10 may have lost: -0.5000"]),
        (Gate(gain=None), report(*questions(30, [1], [1]), mapped=(10, 8)), ["mapped_share is 0.8, 0.9 is asked for"]),
        (Gate(gain=None, min_overlap=0.9), report(*questions(30, [1, 2], [1, 3])), ["overlap@10 is 0.5, 0.9 is asked for"]),
        (Gate(gain=None, min_judged_share=0.6), report(*questions(30, [1, 2], [1, 2])), ["judged_share is 0.5, 0.6 is asked for"]),
        (Gate(gain=None), report(*questions(30, [1], [1]), failed={"golden:1": UNASKED, "golden:2": UNASKED}), ["2 questions could not be asked, 0 may"]),
        (Gate(gain=Gain(metric="mrr@10"), min_judged_queries=0), report(*questions(30, [1], [1], {})), ["no gain in mrr@10 is shown"]),
    ],
)
def test_a_gate_that_does_not_hold_says_why(gate: Gate, told: dict[str, Any], expected: list[str]) -> None:
    reasons = reasons_against(gate, told)
    assert len(reasons) == len(expected) and all(reason.startswith(start) for reason, start in zip(reasons, expected, strict=True)), reasons


def test_more_refusals_and_slower_answers_do_not_pass() -> None:
    slow = [Replayed(str(n), "q", "real", answered([1], {1: 1}), answered([1], {1: 1}, refused=n < 10, ms=25.0)) for n in range(30)]
    reasons = reasons_against(Gate(gain=None), report(*slow))
    assert [reason.split(":")[0] for reason in reasons] == [
        "refusals may have grown",
        "the 95th percentile of latency went from 10 to 25 ms, more than 2 times",
    ]


def test_a_gate_is_read_with_its_bounds_and_a_wrong_one_named(tmp_path: Path) -> None:
    file = tmp_path / "gate.yaml"
    file.write_text("gain: null\nloss: {ndcg@10: 0.01}\nmin_queries: 100\n")
    assert read_gate(file) == Gate(gain=None, loss={"ndcg@10": 0.01}, min_queries=100)
    file.write_text("")
    assert read_gate(file) == Gate()
    wrong_ones = (("min_overlap: 2", "min_overlap"), ("gain: {metric: recall}", "gain.metric"), ("minimum: 1", "minimum"), ("a: [", "cannot be read"))
    for wrong, named in (*wrong_ones, ("[]", "gate.yaml"), ("false", "gate.yaml"), ("0", "gate.yaml")):
        file.write_text(wrong)
        with pytest.raises(InvalidRequest, match=named) as refused:
            read_gate(file)
        assert refused.value.code == "NOT_A_GATE"
    with pytest.raises(ValidationError):
        Gate(loss={"ndcg@10": 1.5})


def test_golden_questions_are_read_line_by_line_and_a_wrong_line_is_named(tmp_path: Path) -> None:
    file = tmp_path / "golden.jsonl"
    file.write_text('{"query": "Where?", "judgements": [{"external_id": "d", "quote": "here", "grade": 3}]}\n\n{"query": "Why?"}\n')
    first, second = read_golden(file)
    assert (first.judgements[0].grade, second.judgements) == (3, [])
    for wrong, named in (
        ("{", "line 1 is no JSON"),
        ('{"query": ""}', "line 1: query"),
        ('{"query": "?!"}', "no word in it"),
        ('{"query": "x", "judgements": [{"quote": "y"}]}', "external_id"),
    ):
        file.write_text(wrong)
        with pytest.raises(InvalidRequest, match=named):
            read_golden(file)
