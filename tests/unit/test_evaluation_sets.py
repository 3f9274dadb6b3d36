from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from anabranch.config.settings import Settings
from anabranch.eval import runner
from evaluation.documents_eval import TestFile, evaluate_documents
from evaluation.retrieval_eval import TestDocument, evaluate_retrieval, read_retrieval_set
from schemas.channels import Channel
from schemas.errors import InvalidRequest, UnreadableDocument
from tests.unit.retrieval_fakes import SteppingClock


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "corpus.jsonl").write_text(
        '{"id": "a", "title": "T", "text": "alpha"}\n{"id": 2, "text": "beta"}\n'
    )
    (tmp_path / "queries.jsonl").write_text(
        '{"id": "q1", "text": "alpha?"}\n{"id": "q2", "text": "beta?"}\n'
    )
    (tmp_path / "qrels.tsv").write_text(
        "query-id\tcorpus-id\tscore\nq1\ta\t2\nq1\t2\t0\nq2\t2\t1\nq2\ta\t-1\n"
    )
    (tmp_path / "meta.json").write_text('{"language": "en"}')
    return tmp_path


def test_retrieval_set_keeps_only_positive_grades(folder: Path) -> None:
    read = read_retrieval_set(folder)
    assert [document.id for document in read.documents] == ["a", "2"] and read.documents[
        1
    ].title is None
    assert read.relevant == {"q1": {"a": 2}, "q2": {"2": 1}} and read.language == "en"


@pytest.mark.parametrize(
    ("file", "text", "named"),
    [
        ("corpus.jsonl", '{"id": "a"}', "corpus.jsonl line 1 has no field 'text'"),
        ("queries.jsonl", "{broken", "queries.jsonl line 1 is not valid JSON"),
        ("qrels.tsv", "header\nq1 a 1\n", "qrels.tsv line 2"),
    ],
)
def test_invalid_set_line_is_named_by_file_and_line(
    folder: Path, file: str, text: str, named: str
) -> None:
    (folder / file).write_text(text)
    with pytest.raises(InvalidRequest, match=named):
        read_retrieval_set(folder)


def test_missing_set_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"corpus\.jsonl"):
        read_retrieval_set(tmp_path)


async def test_invalid_set_is_refused_before_anything_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[object] = []
    monkeypatch.setattr(runner, "start_ephemeral_stack", started.append)
    with pytest.raises(InvalidRequest, match=r"corpus\.jsonl"):
        await runner.run_retrieval_eval(
            tmp_path, Settings(data_dir=tmp_path), channels=None, profile="default"
        )
    assert started == []


async def test_retrieval_set_is_ingested_queried_and_measured(folder: Path) -> None:
    taken: list[str] = []
    seen: list[Sequence[Channel] | None] = []

    async def ingest(documents: Sequence[TestDocument]) -> None:
        taken.extend(document.id for document in documents)

    async def ask(question: str, channels: Sequence[Channel] | None) -> list[tuple[str, float]]:
        seen.append(channels)
        return [("a", 2.0), ("2", 1.0)]

    report, run = await evaluate_retrieval(
        read_retrieval_set(folder), ingest, ask, channels=["lexical"], clock=SteppingClock()
    )
    assert taken == ["a", "2"] and seen == [["lexical"], ["lexical"]] and run["q2"][1] == ("2", 1.0)
    assert report["metrics"]["mrr@10"] == 0.75 and report["metrics"]["recall@2"] == 1.0
    assert report["latency_ms"] == {"p50": 1.0, "p95": 1.0}
    assert {
        "set",
        "profile",
        "documents",
        "queries",
        "metrics",
        "latency_ms",
        "ingest",
    } <= report.keys()


async def test_documents_are_scored_by_ground_truth_kind(tmp_path: Path) -> None:
    (tmp_path / "ground_truth").mkdir()
    truths = {
        "a.txt": ("exact-text", "the quick fox"),
        "b.pdf": ("exact-text", "lost words"),
        "c.md": ("reference-markdown", "# Title\n\n| A | B |\n|---|---|\n| 1 | 2 |"),
        "d.pdf": (
            "table-cells",
            json.dumps({"tables": [{"cells": [{"text": "1"}, {"text": "9"}]}]}),
        ),
        "e.csv": ("table-csv", "x,y\n1,2\n"),
        "f.pdf": (
            "unit-tests",
            '{"type": "present", "text": "fox"}\n{"type": "absent", "text": "page 3"}\n',
        ),
        "g.tif": ("reference-ocr-text", "some words here"),
    }
    lines = []
    for name, (kind, text) in truths.items():
        (tmp_path / "ground_truth" / name).write_text(text)
        lines.append(
            {
                "file": name,
                "kinds": ["k"],
                "ground_truth": f"ground_truth/{name}",
                "ground_truth_kind": kind,
            }
        )
    lines.append(
        {"file": "h.epub", "kinds": ["book"], "ground_truth": None, "ground_truth_kind": None}
    )
    (tmp_path / "manifest.jsonl").write_text("\n".join(json.dumps(line) for line in lines))
    answers = {
        "a.txt": "the quick fix",
        "c.md": "# Title\n\n| A | B |\n|---|---|\n| 1 | 2 |",
        "d.pdf": "| 1 | 2 |\n|---|---|",
        "e.csv": "| x | y |\n|---|---|\n| 1 | 2 |",
        "f.pdf": "a fox on page 3",
        "g.tif": "some other words here",
        "h.epub": "text",
    }

    async def transcribe(file: TestFile) -> str:
        if file.name == "b.pdf":
            raise UnreadableDocument("it is encrypted", code="ENCRYPTED")
        return answers[file.name]

    report = await evaluate_documents(tmp_path, transcribe, clock=SteppingClock())
    files = {file["file"]: file for file in report["files"]}
    assert files["a.txt"]["cer"] == pytest.approx(1 / 13, abs=1e-4) and files["a.txt"][
        "wer"
    ] == pytest.approx(1 / 3, abs=1e-4)
    assert files["b.pdf"]["cer"] == 1.0 and files["b.pdf"]["error"] == {
        "code": "ENCRYPTED",
        "detail": "it is encrypted",
    }
    assert (
        files["c.md"]["cell_recall"] == files["c.md"]["word_f1"] == 1.0
        and files["d.pdf"]["cell_recall"] == 0.5
    )
    assert files["e.csv"]["cell_recall"] == 1.0 and files["f.pdf"]["checks_passed"] == 0.5
    assert (
        files["g.tif"]["word_f1"] == pytest.approx(6 / 7, abs=1e-4) and "cer" not in files["h.epub"]
    )
    exact = report["kinds"]["exact-text"]
    assert (
        exact["files"] == 2
        and exact["failed"] == 1
        and exact["cer"] == pytest.approx((1 / 13 + 1) / 2, abs=1e-4)
    )
    assert report["document_kinds"]["book"]["files"] == 1 and exact["cell_recall"] is None


async def test_folder_without_manifest_is_refused(tmp_path: Path) -> None:
    async def transcribe(file: TestFile) -> str:
        return ""

    with pytest.raises(InvalidRequest, match=r"Cannot read .*manifest\.jsonl: No such file"):
        await evaluate_documents(tmp_path, transcribe, clock=SteppingClock())
