"""Export judgements and difficult questions as files for training and evaluation."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from schemas.ids import sha256_hex
from schemas.judgements import GradedPassage


def build_judgement_export(
    judgements: Iterable[tuple[str, GradedPassage]], difficult: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Group judgements by question.

    `golden` has the format of golden questions. `hard_negatives` are the questions with passages
    that people judged irrelevant although they were found.
    """
    by_query: dict[str, list[GradedPassage]] = defaultdict(list)
    for query, judged in judgements:
        by_query[query].append(judged)
    return {
        "schema_version": 1,
        "golden": [
            {"query": query, "judgements": [_format_judgement(judged) for judged in passages]}
            for query, passages in sorted(by_query.items())
        ],
        "hard_negatives": [
            {
                "query": query,
                "positives": [judged.quote for judged in passages if judged.grade > 0],
                "negatives": [judged.quote for judged in passages if judged.grade == 0],
            }
            for query, passages in sorted(by_query.items())
            if any(judged.grade == 0 for judged in passages)
        ],
        "difficult": [dict(question) for question in difficult],
    }


def _format_judgement(judged: GradedPassage) -> dict[str, Any]:
    return {
        "document_id": str(judged.document_id),
        "external_id": judged.external_id,
        "revision": judged.revision,
        "span": {"char_start": judged.char_start, "char_end": judged.char_end},
        "quote": judged.quote,
        "grade": judged.grade,
    }


def write_judgement_export(folder: Path, export: Mapping[str, Any]) -> dict[str, int]:
    """Write the files, and return their number of lines.

    `qrels.tsv` grades documents by their best passage. Its ids are those of `queries.jsonl`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    queries, qrels = [], []
    for entry in export["golden"]:
        query_id = sha256_hex(entry["query"].encode())[:16]
        queries.append({"id": query_id, "text": entry["query"]})
        grades: dict[str, int] = defaultdict(int)
        for judged in entry["judgements"]:
            name = judged["external_id"] or judged["document_id"]
            grades[name] = max(grades[name], judged["grade"])
        # A tab or a line end in an external id would shift the columns.
        qrels += [(query_id, " ".join(name.split()), grade) for name, grade in grades.items()]
    contents = {
        "golden.jsonl": export["golden"],
        "hard_negatives.jsonl": export["hard_negatives"],
        "difficult.jsonl": export["difficult"],
        "queries.jsonl": queries,
    }
    for name, entries in contents.items():
        lines = "".join(f"{json.dumps(entry, ensure_ascii=False)}\n" for entry in entries)
        (folder / name).write_text(lines, encoding="utf-8")
    rows = "".join(f"{query}\t{document}\t{grade}\n" for query, document, grade in qrels)
    (folder / "qrels.tsv").write_text(f"query-id\tcorpus-id\tscore\n{rows}", encoding="utf-8")
    return {name: len(entries) for name, entries in contents.items()} | {"qrels.tsv": len(qrels)}
