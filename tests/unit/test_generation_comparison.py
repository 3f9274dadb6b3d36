"""Comparison of two generations: rank moves, judgements and promotion gates."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pydantic import ValidationError

from evaluation.comparison import (
    ComparedQuestion,
    FailedQuestion,
    JudgementCounts,
    SideResult,
    build_comparison_report,
    read_golden,
)
from evaluation.judgements import (
    CandidateDocument,
    JudgementTarget,
    locate_judgement,
    map_judgements,
)
from evaluation.metrics import (
    RankedPassage,
    compute_judged_share,
    compute_overlap,
    list_judged_units,
    match_passages,
    ndcg,
    reciprocal_rank,
)
from evaluation.promotion_gate import Gain, PromotionGate, list_violations, read_gate
from schemas.errors import InvalidRequest
from sql.index.snapshot import ParentSpan

DOCUMENT, OTHER = UUID(int=1000), UUID(int=2000)
MARKDOWN = (
    "# Birds\n\nThe heron stands still.\n\n"
    "The stork  builds a large nest of sticks.\n\nThe heron stands still."
)
PARENT_SPANS = [
    ParentSpan(UUID(int=11), DOCUMENT, 0, 33),
    ParentSpan(UUID(int=12), DOCUMENT, 33, 76),
    ParentSpan(UUID(int=13), DOCUMENT, 76, len(MARKDOWN)),
]
VISIBLE_DOCUMENT = CandidateDocument(DOCUMENT, 1, MARKDOWN, PARENT_SPANS)


def make_judgement(
    start: int | None,
    quote: str | None,
    *,
    end: int | None = None,
    grade: int = 1,
    revision: int | None = 1,
) -> JudgementTarget:
    return JudgementTarget(
        DOCUMENT,
        revision,
        start,
        end if end is not None else (start or 0) + len(quote or ""),
        quote,
        grade,
    )


def make_candidate(parent: int, start: int, end: int, document: UUID = DOCUMENT) -> RankedPassage:
    return RankedPassage(UUID(int=parent), document, start, end)


@pytest.mark.parametrize(
    ("judged", "expected"),
    [
        (make_judgement(9, "The heron stands still."), "The heron stands still."),
        (make_judgement(70, "The heron stands still."), "The heron stands still."),
        (make_judgement(0, "the stork builds a LARGE nest"), "The stork  builds a large nest"),
        (make_judgement(0, "No bird of this kind is told of anywhere."), None),
        (make_judgement(9, None, end=32), "The heron stands still."),
        (make_judgement(9, None, end=32, revision=2), None),
        (make_judgement(9, None, end=3200), None),
    ],
)
def test_quote_is_located_nearest_to_judged_offset(
    judged: JudgementTarget, expected: str | None
) -> None:
    span = locate_judgement(judged, VISIBLE_DOCUMENT)
    assert (MARKDOWN[slice(*span)] if span else None) == expected


def test_nearest_of_equal_quotes_is_located() -> None:
    assert locate_judgement(make_judgement(70, "The heron stands still."), VISIBLE_DOCUMENT) == (
        MARKDOWN.rindex("The heron"),
        len(MARKDOWN),
    )


def test_slightly_different_quote_maps_to_same_parent() -> None:
    assert map_judgements(
        [make_judgement(0, "The stork buiIds a large nest of sticks")], {DOCUMENT: VISIBLE_DOCUMENT}
    ) == ({UUID(int=12): 1}, 1)


def test_offsets_without_quote_are_ignored_in_different_text() -> None:
    assert (
        locate_judgement(
            make_judgement(9, None, end=32), replace(VISIBLE_DOCUMENT, is_text_as_judged=False)
        )
        is None
    )


def test_judgement_maps_to_best_overlapping_parent_with_highest_grade() -> None:
    judgements = [
        make_judgement(9, "The heron stands still.", grade=1),
        make_judgement(10, None, end=34, grade=3),
        JudgementTarget(OTHER, None, None, None, None, 2),
        make_judgement(0, "No such"),
    ]
    assert map_judgements(judgements, {DOCUMENT: VISIBLE_DOCUMENT}) == ({UUID(int=11): 3}, 2)
    whole = CandidateDocument(OTHER, 1, "", [])
    assert map_judgements(judgements, {DOCUMENT: VISIBLE_DOCUMENT, OTHER: whole}) == (
        {UUID(int=11): 3, OTHER: 2},
        3,
    )


def test_passages_match_when_half_of_shorter_overlaps() -> None:
    large, first, second, elsewhere = (
        make_candidate(1, 0, 100),
        make_candidate(2, 0, 60),
        make_candidate(3, 60, 120),
        make_candidate(4, 0, 100, OTHER),
    )
    assert match_passages([large, elsewhere], [second, first, elsewhere]) == [(0, 1), (1, 2)]
    assert (
        compute_overlap([large], [second]) == 1.0 and compute_overlap([large], [elsewhere]) == 0.0
    )
    assert compute_overlap([], []) == 1.0 and compute_overlap([large], []) == 0.0
    assert compute_overlap([large, elsewhere], [large]) == 0.5


def test_passages_of_different_texts_match_by_words() -> None:
    one, same, other = (
        replace(make_candidate(1, 0, 9), words=frozenset(words.split()))
        for words in ("the heron stands", "the heron stands still", "a stork")
    )
    assert compute_overlap([one], [same]) == 1.0 and compute_overlap([one], [other]) == 0.0


def test_unjudged_results_are_condensed_out() -> None:
    grades = {UUID(int=1): 3, UUID(int=2): 0, OTHER: 1}
    ranked = [
        make_candidate(9, 0, 1),
        make_candidate(2, 0, 1),
        make_candidate(8, 0, 1),
        make_candidate(1, 0, 1),
        make_candidate(7, 0, 1, OTHER),
        make_candidate(6, 0, 1, OTHER),
    ]
    units = list_judged_units(ranked, grades)
    assert units == [UUID(int=2), UUID(int=1), OTHER]
    assert reciprocal_rank(10, units, grades) == 0.5
    assert ndcg(10, units, grades) == pytest.approx((3 / 1.5849625 + 1 / 2) / (3 + 1 / 1.5849625))
    assert ndcg(10, [UUID(int=1), OTHER], grades) == pytest.approx(1.0)
    assert compute_judged_share(ranked, grades) == pytest.approx(4 / 6)


def make_answer(
    order: Sequence[int], grades: Mapping[int, int], *, refused: bool = False, ms: float = 10.0
) -> SideResult:
    return SideResult(
        [make_candidate(number, 100 * number, 100 * number + 90) for number in order],
        refused,
        ms,
        grades={UUID(int=n): g for n, g in grades.items()},
    )


FAILED_QUERY = FailedQuestion("q", "X", "y")


def make_report(
    *questions: ComparedQuestion,
    mapped: tuple[int, int] = (10, 10),
    failed: Mapping[str, FailedQuestion] | None = None,
) -> dict[str, Any]:
    judgements = JudgementCounts(10, {"A": mapped[0], "B": mapped[1]})
    return build_comparison_report(
        {"A": "g1", "B": "g2"}, questions, judgements, {"A": 5, "B": 7}, failed or {}
    )


def make_query_pairs(
    count: int, a: Sequence[int], b: Sequence[int], grades: Mapping[int, int] | None = None
) -> list[ComparedQuestion]:
    judged = {1: 3} if grades is None else grades
    return [
        ComparedQuestion(
            f"q{number}",
            f"question {number}",
            "golden",
            make_answer(a, judged),
            make_answer(b, judged),
        )
        for number in range(count)
    ]


def test_comparison_with_itself_shows_no_difference() -> None:
    same = make_report(*make_query_pairs(30, [2, 1], [2, 1]))
    assert (
        same["overlap@10"] == 1.0
        and same["worst"] == []
        and same["metrics"]["A"] == same["metrics"]["B"]
    )
    assert {
        name: (interval["low"], interval["high"])
        for name, interval in same["intervals"].items()
        if name != "overlap@10"
    } == dict.fromkeys(("ndcg@10", "mrr@10", "refusals", "latency_ms"), (0.0, 0.0))
    assert same["rank_moves"] == {"same": 60, "up": 0, "down": 0, "left": 0, "mean_distance": 0.0}


def test_report_lists_rank_moves_and_worst_queries() -> None:
    lost = ComparedQuestion(
        "lost",
        "lost question",
        "real",
        make_answer([1, 2], {1: 3}),
        make_answer([3, 2, 1], {1: 3}, refused=True, ms=30.0),
        UUID(int=5),
    )
    report = make_report(*make_query_pairs(12, [2, 1, 3], [1, 2, 4], {1: 3, 2: 0}), lost)
    assert report["queries"] == report["judged_queries"] == 13 and report["sources"] == {
        "golden": 12,
        "real": 1,
        "feedback": 0,
    }
    assert report["rank_moves"] == {
        "same": 13 - 12,
        "up": 12,
        "down": 12 + 1,
        "left": 12,
        "mean_distance": 1.0,
    }
    assert report["metrics"]["B"]["mrr@10"] > report["metrics"]["A"]["mrr@10"]
    assert report["intervals"]["ndcg@10"]["low"] > 0 and report["refusals"] == {
        "A": 0.0,
        "B": pytest.approx(1 / 13, abs=1e-4),
    }
    assert len(report["worst"]) == 10 and report["cost"]["B"]["index_bytes"] == 7
    worst = report["worst"][0]
    assert (worst["query"], worst["source"], worst["run_id"], worst["overlap@10"]) == (
        "lost question",
        "real",
        str(UUID(int=5)),
        0.6667,
    )
    assert worst["refused"] == {"A": False, "B": True} and worst["ndcg@10"] == worst["mrr@10"] == {
        "A": 1.0,
        "B": 1.0,
    }
    json.dumps(report)


def test_query_losing_its_judged_passage_ranks_worst() -> None:
    lost = ComparedQuestion(
        "gone", "gone", "golden", make_answer([1], {1: 3}), make_answer([2], {1: 3})
    )
    report = make_report(*make_query_pairs(12, [2, 1], [2, 3]), lost)
    assert (
        report["worst"][0]["query"] in ("gone", "question 0")
        and report["worst"][0]["ndcg@10"]["B"] == 0.0
    )


def test_default_gate_requires_significant_gain() -> None:
    grades = {1: 3, 2: 0}
    assert (
        list_violations(PromotionGate(), make_report(*make_query_pairs(30, [2, 1], [1, 2], grades)))
        == []
    )
    [reason] = list_violations(
        PromotionGate(), make_report(*make_query_pairs(30, [2, 1], [2, 1], grades))
    )
    assert reason.startswith("no gain in ndcg@10: +0.0000 [+0.0000, +0.0000]")
    assert (
        list_violations(
            PromotionGate(gain=None), make_report(*make_query_pairs(30, [2, 1], [2, 1], grades))
        )
        == []
    )


@pytest.mark.parametrize(
    ("gate", "report", "expected"),
    [
        (
            PromotionGate(),
            make_report(*make_query_pairs(5, [2, 1], [1, 2], {1: 3, 2: 0})),
            [
                "5 questions were compared, the minimum is 20",
                "5 questions are judged in both, the minimum is 10",
            ],
        ),
        (
            PromotionGate(gain=None),
            make_report(*make_query_pairs(30, [1, 2], [2, 1], {1: 3, 2: 0})),
            ["loss in ndcg@10: -0.3691", "loss in mrr@10: -0.5000"],
        ),
        (
            PromotionGate(gain=None),
            make_report(*make_query_pairs(30, [1], [1]), mapped=(10, 8)),
            ["mapped_share is 0.8, the minimum is 0.9"],
        ),
        (
            PromotionGate(gain=None, min_overlap=0.9),
            make_report(*make_query_pairs(30, [1, 2], [1, 3])),
            ["overlap@10 is 0.5, the minimum is 0.9"],
        ),
        (
            PromotionGate(gain=None, min_judged_share=0.6),
            make_report(*make_query_pairs(30, [1, 2], [1, 2])),
            ["judged_share is 0.5, the minimum is 0.6"],
        ),
        (
            PromotionGate(gain=None),
            make_report(
                *make_query_pairs(30, [1], [1]),
                failed={"golden:1": FAILED_QUERY, "golden:2": FAILED_QUERY},
            ),
            ["2 questions failed, the maximum is 0"],
        ),
        (
            PromotionGate(gain=Gain(metric="mrr@10"), min_judged_queries=0),
            make_report(*make_query_pairs(30, [1], [1], {})),
            ["no gain in mrr@10: no question"],
        ),
    ],
)
def test_failed_gate_states_reasons(
    gate: PromotionGate, report: dict[str, Any], expected: list[str]
) -> None:
    reasons = list_violations(gate, report)
    assert len(reasons) == len(expected) and all(
        reason.startswith(start) for reason, start in zip(reasons, expected, strict=True)
    ), reasons


def test_gate_rejects_more_refusals_and_slower_answers() -> None:
    slow = [
        ComparedQuestion(
            str(n),
            "q",
            "real",
            make_answer([1], {1: 1}),
            make_answer([1], {1: 1}, refused=n < 10, ms=25.0),
        )
        for n in range(30)
    ]
    reasons = list_violations(PromotionGate(gain=None), make_report(*slow))
    assert [reason.split(":")[0] for reason in reasons] == [
        "more refusals",
        "p95 latency grew from 10 to 25 ms, the maximum ratio is 2",
    ]


def test_gate_file_is_parsed_and_validated(tmp_path: Path) -> None:
    file = tmp_path / "gate.yaml"
    file.write_text("gain: null\nloss: {ndcg@10: 0.01}\nmin_queries: 100\n")
    assert read_gate(file) == PromotionGate(gain=None, loss={"ndcg@10": 0.01}, min_queries=100)
    file.write_text("")
    assert read_gate(file) == PromotionGate()
    wrong_ones = (
        ("min_overlap: 2", "min_overlap"),
        ("gain: {metric: recall}", "gain.metric"),
        ("minimum: 1", "minimum"),
        ("a: [", "Cannot read"),
    )
    for wrong, named in (
        *wrong_ones,
        ("[]", "gate.yaml"),
        ("false", "gate.yaml"),
        ("0", "gate.yaml"),
    ):
        file.write_text(wrong)
        with pytest.raises(InvalidRequest, match=named) as refused:
            read_gate(file)
        assert refused.value.code == "NOT_A_GATE"
    with pytest.raises(ValidationError):
        PromotionGate(loss={"ndcg@10": 1.5})


def test_golden_queries_are_parsed_and_invalid_line_is_named(tmp_path: Path) -> None:
    file = tmp_path / "golden.jsonl"
    file.write_text(
        '{"query": "Where?", "judgements": [{"external_id": "d", "quote": "here", "grade": 3}]}\n\n'
        '{"query": "Why?"}\n'
    )
    first, second = read_golden(file)
    assert (first.judgements[0].grade, second.judgements) == (3, [])
    for wrong, named in (
        ("{", "line 1 is not valid JSON"),
        ('{"query": ""}', "line 1: query"),
        ('{"query": "?!"}', "contains no word"),
        ('{"query": "x", "judgements": [{"quote": "y"}]}', "external_id"),
    ):
        file.write_text(wrong)
        with pytest.raises(InvalidRequest, match=named):
            read_golden(file)
