"""Judgements as files for training and evaluation."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import UUID

from evaluation.comparison import read_golden
from evaluation.judgement_export import build_judgement_export, write_judgement_export
from schemas.judgements import GradedPassage


def make_judgement(name: str | None, quote: str, grade: int) -> GradedPassage:
    return GradedPassage(
        document_id=UUID(int=7),
        external_id=name,
        revision=2,
        char_start=3,
        char_end=3 + len(quote),
        quote=quote,
        grade=grade,
    )


def test_files_hold_each_judgement_and_can_be_read_as_golden_questions(tmp_path: Path) -> None:
    judgements = [
        ("Where?", make_judgement("a\tb", "in the hall", 1)),
        ("Where?", make_judgement("a\tb", "behind the hall", 3)),
        ("Where?", make_judgement(None, "nowhere", 0)),
        ("When?", make_judgement("c", "at nine", 2)),
    ]
    export = build_judgement_export(judgements, [{"query": "Why?", "refused": True}])
    counts = write_judgement_export(tmp_path / "new", export)
    assert counts == {
        "golden.jsonl": 2,
        "hard_negatives.jsonl": 1,
        "difficult.jsonl": 1,
        "queries.jsonl": 2,
        "qrels.tsv": 3,
    }
    golden = {question.query: question for question in read_golden(tmp_path / "new/golden.jsonl")}
    assert [judged.grade for judged in golden["Where?"].judgements] == [1, 3, 0]
    [negative] = (tmp_path / "new/hard_negatives.jsonl").read_text().splitlines()
    assert json.loads(negative)["negatives"] == ["nowhere"]
    header, *rows = (tmp_path / "new/qrels.tsv").read_text().splitlines()
    assert header == "query-id\tcorpus-id\tscore"
    ids = {
        json.loads(line)["text"]: json.loads(line)["id"]
        for line in (tmp_path / "new/queries.jsonl").read_text().splitlines()
    }
    assert sorted(rows) == sorted(
        [
            f"{ids['When?']}\tc\t2",
            f"{ids['Where?']}\ta b\t3",
            f"{ids['Where?']}\t{UUID(int=7)}\t0",
        ]
    )
