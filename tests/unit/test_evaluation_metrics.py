from __future__ import annotations

import random
from pathlib import Path

import ir_measures
import pytest
from ir_measures import RR, R, nDCG

from evaluation.metrics import MEASURES, measure_queries, measure_run, paired_interval
from evaluation.retrieval_eval import write_run

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
