"""Tables and plot of stored retrieval reports, and what they are computed from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks.ablation_report import draw_plot, format_tables
from benchmarks.retrieval_sets import compare_with_hybrid, read_sample

SVG = "{http://www.w3.org/2000/svg}"


def write_set(folder: Path, queries: int) -> Path:
    lines = [json.dumps({"id": f"d{n}", "title": f"T{n}", "text": "x"}) for n in range(queries)]
    (folder / "corpus.jsonl").write_text("\n".join(lines))
    lines = [json.dumps({"id": f"q{n}", "text": "x"}) for n in range(queries)]
    (folder / "queries.jsonl").write_text("\n".join(lines))
    lines = [f"q{n}\td{n}\t1" for n in range(queries)]
    (folder / "qrels.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *lines]))
    return folder


def make_report(**differences: tuple[float, float, float]) -> dict[str, Any]:
    metrics = dict.fromkeys(
        ("ndcg@10", "mrr@10", "recall@2", "recall@5", "recall@10", "recall@100"), 0.25
    )
    return {
        "set": "manuals <2024>",
        "documents": 1200,
        "queries": 40,
        "ingest": {"default": {"child_chunks": 3000}},
        "configurations": {
            name: {
                "metrics": metrics,
                "difference_from_hybrid": {
                    "ndcg@10": dict(zip(("difference", "low", "high"), interval, strict=True))
                },
                "cpu_ms_per_query": {"process": 30.4, "postgres": 12.2},
            }
            for name, interval in differences.items()
        },
    }


def test_sample_judges_only_the_queries_it_asks(tmp_path: Path) -> None:
    sample = read_sample(write_set(tmp_path, 5), 2, titled=False)
    assert [query.id for query in sample.queries] == ["q0", "q2", "q4"]
    assert sample.relevant.keys() == {"q0", "q2", "q4"}
    assert [document.title for document in sample.documents] == [None] * 5


def test_difference_is_negative_where_the_hybrid_is_better(tmp_path: Path) -> None:
    sample = read_sample(write_set(tmp_path, 4), 1, titled=True)
    runs = {
        "hybrid": {f"q{n}": [(f"d{n}", 1.0)] for n in range(4)},
        "graph": {f"q{n}": [("other", 2.0), (f"d{n}", 1.0)] for n in range(4)},
    }
    differences = compare_with_hybrid(runs, sample)
    assert differences["graph"]["mrr@10"] == {"difference": -0.5, "low": -0.5, "high": -0.5}
    assert differences["graph"]["recall@2"]["difference"] == 0
    assert differences["hybrid"]["ndcg@10"]["difference"] == 0


def test_table_has_a_line_per_configuration() -> None:
    table = format_tables({"m": make_report(lexical=(-0.02, -0.031, 0.004), hybrid=(0, 0, 0))})
    assert "1,200 documents, 40 questions, 3,000 chunks (default)" in table
    assert table.splitlines()[-2:] == [
        "| lexical | .2500 | .2500 | .2500 | .2500 | .2500 | .2500 | −.020 [−.031, +.004] | 43 |",
        "| hybrid | .2500 | .2500 | .2500 | .2500 | .2500 | .2500 |  | 43 |",
    ]


@pytest.mark.parametrize(
    ("interval", "kind"),
    [
        ((-0.03, -0.05, -0.01), "worse"),
        ((-0.01, -0.03, 0.01), "open"),
        ((0.02, 0.01, 0.03), "better"),
    ],
)
def test_plot_marks_intervals_beside_zero(interval: tuple[float, float, float], kind: str) -> None:
    root = ElementTree.fromstring(
        draw_plot({"m": make_report(semantic=interval, hybrid=(0, 0, 0))})
    )
    (line,) = [line for line in root.iter(f"{SVG}line") if "interval" in line.attrib["class"]]
    assert line.attrib["class"] == f"interval {kind}"
    zero = next(line for line in root.iter(f"{SVG}line") if line.attrib["class"] == "zero")
    assert (float(line.attrib["x2"]) < float(zero.attrib["x1"])) is (kind == "worse")


def test_plot_writes_differences_beyond_its_edge_as_numbers() -> None:
    root = ElementTree.fromstring(draw_plot({"m": make_report(graph=(-0.48, -0.52, -0.44))}))
    assert "−.480" in [text.text for text in root.iter(f"{SVG}text")]
