""""""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any, Literal

import ir_measures
import pytest
from ir_measures import RR, R, nDCG

from evaluation.answers_eval import (
    AnswerQuestion,
    contains,
    evaluate_answers,
    extract_lead,
    normalize_text,
    read_answers_set,
    score_answer,
)
from evaluation.documents_eval import (
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
from evaluation.metrics import MEASURES, measure_queries, measure_run, paired_interval
from evaluation.reports_eval import (
    ParsedFile,
    ReportCase,
    build_reports_report,
    read_report_cases,
    score_case,
)
from evaluation.retrieval_eval import write_run
from schemas.errors import InvalidRequest
from schemas.judge_verdicts import CheckName, JudgeCheck, JudgeVerdict
from schemas.questions import QueryResponse
from tests.unit.query_responses import respond

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


RENT = AnswerQuestion(
    id="rent",
    question="How much is the rent?",
    kind="exact",
    language="en",
    answerable=True,
    documents=["rent.md"],
    gold=["2,450 euros"],
    must_not=["540 euros"],
)
ABSENT = RENT.model_copy(update={"id": "absent", "answerable": False, "gold": []})


@pytest.mark.parametrize(
    ("text", "wanted", "is_held"),
    [
        ("The rent is **2 450 euros**.", "2,450 euros", True),
        ("Preço: 27 480 €", "27480€", True),
        ("It takes 12.50 kg", "12.5 kg", True),
        ("HX-11S", "HX-11", False),
        ("1,540 euros", "540 euros", False),
        ("Weight | 5.6 kg", "weight · 5.6 kg", True),
        ("Crème brûlée", "creme brulee", True),
        ("停车费是五元。", "五元", True),
        ("停车费是五元。", "六元", False),
    ],
)
def test_text_is_compared_by_whole_words_and_numbers(text: str, wanted: str, is_held: bool) -> None:
    assert contains(normalize_text(text), wanted) is is_held


def test_lead_ends_at_citation_sentence_or_line() -> None:
    assert extract_lead("Dr. Ames pays. Nora keeps it. [1]") == "Dr. Ames pays."
    assert extract_lead("Rent: 540 euros [1] Fee: 3 [2]") == "Rent: 540 euros"
    assert extract_lead("First\nsecond") == "First"


@pytest.mark.parametrize(
    ("answer", "quote", "outcome", "is_marked_right"),
    [
        ("The rent is **2,450 euros**. [1]", "The rent is 2,450 euros.", "right", True),
        ("It is paid monthly. [1]", "It is paid monthly: 2,450 euros.", "right", None),
        ("The charge is **540 euros**. [1]", "2,450 euros", "wrong", False),
        ("Nobody knows. [1]", "Nobody knows.", "wrong", None),
        (None, "", "falsely_refused", None),
    ],
)
def test_answer_is_scored(
    answer: str | None, quote: str, outcome: str, is_marked_right: bool | None
) -> None:
    scored = score_answer(RENT, respond(answer, quote))
    assert (scored.outcome, scored.is_marked_right) == (outcome, is_marked_right)


def test_half_needs_some_group_and_contrary_word_is_wrong() -> None:
    both = RENT.model_copy(update={"all_of": [["2,450"], ["540"]], "must_not": []})
    assert score_answer(both, respond("It is 2,450 euros. [1]")).outcome == "half"
    expected = RENT.model_copy(update={"expected": "yes"})
    assert score_answer(expected, respond("No, 2,450 euros. [1]")).outcome == "wrong"


async def test_report_has_measures_by_kind_and_confidence() -> None:
    answers = {
        RENT.question: respond("The rent is **2,450 euros**. [1]", "The rent is 2,450 euros.")
    }
    absent = ABSENT.model_copy(update={"question": "Who?", "kind": "absent"})

    async def ask(question: str) -> QueryResponse:
        return answers.get(question) or respond("Nora. [1]", "Nora.", "low")

    report, responses = await evaluate_answers([RENT, absent], ask)
    assert report["overall"]["right"] == {"value": 1.0, "low": 1.0, "high": 1.0}
    assert report["overall"]["correctly_refused"]["value"] == 0.0
    assert report["overall"]["confidence_auc_all"]["value"] == 1.0
    assert report["kinds"]["exact"]["lead_quote_has_gold"]["value"] == 1.0
    assert report["right_by_confidence"] == {
        "low": {"answers": 1, "right": 0.0},
        "high": {"answers": 1, "right": 1.0},
    }
    assert len(responses) == 2 and report["latency_ms"] == {"p50": 12.0, "p95": 12.0}


@pytest.mark.parametrize(
    ("model", "results", "faithful"),
    [
        ("chat", {"groundedness": "pass", "hallucination": "pass"}, True),
        ("chat", {"groundedness": "not_checked", "contradiction": "fail"}, False),
        ("chat", {"groundedness": "pass", "relevance": "fail"}, True),
        ("chat", {"groundedness": "not_checked"}, None),
        ("extractive", {"groundedness": "pass"}, None),
    ],
)
async def test_written_answers_are_faithful_if_no_check_against_citations_failed(
    model: str, results: dict[CheckName, Literal["pass", "fail", "not_checked"]], faithful: bool
) -> None:
    checks = [
        JudgeCheck(name=name, kind="deterministic", result=result)
        for name, result in results.items()
    ]
    verdict = JudgeVerdict(decision="PASS", checks=checks)

    async def ask(question: str) -> QueryResponse:
        # The first is blocked by the judge: it was written nevertheless.
        response = respond(None if question == RENT.question else "Nora. [1]", "Nora.")
        trace = response.trace.model_copy(update={"models": {"answer": model}})
        return response.model_copy(update={"judge": verdict, "trace": trace})

    absent = ABSENT.model_copy(update={"question": "Who?"})
    report, _ = await evaluate_answers([RENT, absent], ask)
    measured = report["overall"].get("faithfulness")
    assert (measured and measured["value"]) == (None if faithful is None else float(faithful))
    assert report["overall"]["refusal_precision"]["value"] == 0.0


def test_set_without_gold_is_refused(tmp_path: Path) -> None:
    (tmp_path / "manifest.jsonl").write_text('{"file": "files/a.md"}\n')
    line = RENT.model_copy(update={"gold": []}).model_dump_json()
    (tmp_path / "questions.jsonl").write_text(line + "\n")
    with pytest.raises(InvalidRequest, match="without gold: rent"):
        read_answers_set(tmp_path)
    (tmp_path / "questions.jsonl").write_text(json.dumps({"id": 1}))
    with pytest.raises(InvalidRequest, match=r"questions\.jsonl line 1: id"):
        read_answers_set(tmp_path)


PARSED = ParsedFile("Fee ~~90~~ 72 €, 10⁶ units", ("CHARSET_GUESSED: read as cp1252",))


def write_cases(folder: Path, *cases: dict[str, Any]) -> Path:
    (folder / "fee.md").write_text("The fee is 72 euros.", encoding="utf-8")
    lines = "".join(json.dumps({"file": "fee.md", "kind": "fee", **case}) + "\n" for case in cases)
    (folder / "cases.jsonl").write_text(lines, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("conditions", "is_right"),
    [
        ({"must": ["72 euros"], "must_not": ["90"]}, True),
        ({"must": ["7"]}, False),
        ({"must": ["72", "90"]}, False),
        ({"must_not": ["72"]}, False),
        ({"refused": False}, True),
        ({"refused": True}, False),
        ({"markdown_must": ["10⁶", "~~90~~"]}, True),
        ({"markdown_must": ["106"]}, False),
        ({"markdown_must_not": ["90 72"]}, True),
        ({"markdown_must_not": ["72 €"]}, False),
        ({"markdown_or_warning": ["no such text", "charset"]}, True),
        ({"markdown_or_warning": ["no such text"]}, False),
    ],
)
def test_every_condition_of_case_must_hold(conditions: dict[str, Any], is_right: bool) -> None:
    case = ReportCase(file="fee.md", kind="fee", question="What is the fee?", **conditions)
    result = score_case(case, PARSED, respond("The fee is **72 euros**. [1]"))
    assert result.is_right is is_right


def test_refusal_shows_no_value() -> None:
    case = ReportCase(file="fee.md", kind="fee", question="What is the fee?", must_not=["90"])
    refused = respond(None)
    assert score_case(case, PARSED, refused).faults == ("was refused",)
    expected = case.model_copy(update={"must_not": [], "refused": True})
    assert score_case(expected, PARSED, refused).is_right


def test_file_that_failed_is_not_right_by_lack_of_text() -> None:
    case = ReportCase(file="fee.md", kind="fee", markdown_must_not=["90"])
    failed = ParsedFile("", ("The file is encrypted.",), "ENCRYPTED")
    assert score_case(case, failed, None).faults == ("the file failed with ENCRYPTED",)


def test_report_counts_by_kind(tmp_path: Path) -> None:
    folder = write_cases(tmp_path, {"markdown_must": ["72"]}, {"markdown_must": ["73"]})
    report = build_reports_report(
        [score_case(case, PARSED, None) for case in read_report_cases(folder)]
    )
    assert report["kinds"] == {"fee": {"cases": 2, "right": 1}}
    assert [item["faults"] for item in report["wrong"]] == [["the Markdown lacks '73'"]]


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ({"question": "What is the fee?"}, "without must"),
        ({"must": ["72"]}, "no question"),
        ({}, "no condition"),
        ({"file": "other.md", "markdown_must": ["72"]}, "other.md is no file"),
        ({"file": "../outside.md", "markdown_must": ["72"]}, "outside.md is no file"),
        ({"markdown_must": ["72"], "markdown_mst": []}, "markdown_mst"),
    ],
)
def test_invalid_case_is_named(tmp_path: Path, case: dict[str, Any], reason: str) -> None:
    (tmp_path / "outside.md").write_text("secret", encoding="utf-8")
    (folder := tmp_path / "set").mkdir()
    with pytest.raises(InvalidRequest, match=reason):
        read_report_cases(write_cases(folder, case))


def test_folder_without_cases_is_no_set(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="Cannot read"):
        read_report_cases(tmp_path)


JUDGEMENTS = {
    "q1": {"a": 1, "b": 1},
    "q2": {"c": 1},
    "q3": {f"d{n}": 1 for n in range(15)},
    "q4": {"z": 1},
}


def make_random_run(seed: int) -> dict[str, list[tuple[str, float]]]:
    dice = random.Random(seed)
    documents = [*"abcxyz", *(f"d{n}" for n in range(60))]
    return {
        query: [(name, 100.0 - rank) for rank, name in enumerate(dice.sample(documents, 60))]
        for query in ("q1", "q2", "q3")
    }


@pytest.mark.parametrize("seed", range(8))
def test_metrics_match_ir_measures(seed: int) -> None:
    run = make_random_run(seed)
    named = {
        "ndcg@10": nDCG @ 10,
        "mrr@10": RR @ 10,
        **{f"recall@{k}": R @ k for k in (2, 5, 10, 50, 100)},
    }
    assert named.keys() == MEASURES.keys()
    reference = ir_measures.calc_aggregate(
        list(named.values()), JUDGEMENTS, {query: dict(ranked) for query, ranked in run.items()}
    )
    own = measure_run(run, JUDGEMENTS)
    for name, measure in named.items():
        assert own[name] == pytest.approx(reference[measure], abs=6e-5), name


def test_unanswered_query_scores_zero_and_unjudged_is_skipped() -> None:
    values = measure_queries(
        {"q1": [("a", 1.0)]}, {"q1": {"a": 1}, "q2": {"b": 1}, "q3": {}}, MEASURES["mrr@10"]
    )
    assert values == {"q1": 1.0, "q2": 0.0}


def test_run_file_is_valid_trec_format(tmp_path: Path) -> None:
    run = {"q 1": [("doc a", 2.0), ("b", 2.0), ("c", 1.5)], "q2": [("a", -0.5)]}
    write_run(tmp_path / "run", run, "anabranch default")
    assert (tmp_path / "run").read_text().splitlines()[1].split()[:4] == ["q_1", "Q0", "b", "2"]
    back = {
        (item.query_id, item.doc_id): item.score
        for item in ir_measures.read_trec_run(str(tmp_path / "run"))
    }
    ordered = sorted((key for key in back if key[0] == "q_1"), key=lambda key: -back[key])
    assert [document for _, document in ordered] == ["doc_a", "b", "c"]
    assert [
        line.split()[2]
        for line in (tmp_path / "run").read_text().splitlines()
        if line.startswith("q_1 ")
    ] == ["doc_a", "b", "c"]


def test_paired_interval_excludes_zero_only_for_real_difference() -> None:
    dice = random.Random(1)
    base = {f"q{n}": dice.random() for n in range(200)}
    better = {query: value + 0.1 + dice.uniform(-0.05, 0.05) for query, value in base.items()}
    noise = {
        query: value + (0.3 if n % 2 else -0.29) for n, (query, value) in enumerate(base.items())
    }
    sure, unsure = paired_interval(base, better), paired_interval(base, noise)
    assert 0 < sure.low < sure.difference < sure.high and sure.queries == 200
    assert unsure.low < 0 < unsure.high
    assert paired_interval(base, better) == sure


def test_runs_without_common_query_cannot_be_compared() -> None:
    with pytest.raises(ValueError, match="no query"):
        paired_interval({"a": 1.0}, {"b": 1.0})
