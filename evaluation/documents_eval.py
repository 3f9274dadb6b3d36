"""Evaluate parsing and OCR against ground truth.

A test set is `manifest.jsonl` with the folders `files` and `ground_truth`.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import fmean
from typing import Any

from evaluation.metrics import SCHEMA_VERSION
from evaluation.text_metrics import (
    cell_recall,
    character_error_rate,
    compute_pass_rate,
    list_cell_texts,
    normalize_text,
    strip_markdown,
    word_error_rate,
    word_f1,
)
from schemas.errors import AnabranchError, InvalidRequest


@dataclass(frozen=True, slots=True)
class TestFile:
    """A file with its ground truth.

    `truth_kind` is exact-text, reference-ocr-text, reference-markdown, table-cells, table-csv,
    unit-tests or None.
    """

    # pytest would collect a class whose name begins with Test.
    __test__ = False

    path: Path
    name: str
    media_type: str | None
    language: str | None
    kinds: tuple[str, ...]
    truth_kind: str | None
    truth: Path | None


def read_documents_set(folder: Path) -> list[TestFile]:
    """Read the test set. Raises InvalidRequest if the folder is invalid."""
    try:
        lines = (folder / "manifest.jsonl").read_text(encoding="utf-8").splitlines()
        files = []
        for entry in (json.loads(line) for line in lines if line.strip()):
            truth_name = entry.get("ground_truth")
            files.append(
                TestFile(
                    folder / entry["file"],
                    entry["file"],
                    entry.get("mime"),
                    entry.get("language"),
                    tuple(entry.get("kinds") or ()),
                    entry.get("ground_truth_kind"),
                    folder / truth_name if truth_name else None,
                )
            )
        return files
    except (OSError, json.JSONDecodeError, KeyError) as error:
        raise InvalidRequest(
            f"{folder} is not a document test set: {error}",
            code="NOT_A_TEST_SET",
            remedy=(
                "Add manifest.jsonl with one line per file: {file, mime, kinds, ground_truth, "
                "ground_truth_kind}."
            ),
        ) from error


Transcribe = Callable[[TestFile], Awaitable[str]]
"""Converts a file to Markdown. Raises AnabranchError for an unreadable file."""
Clock = Callable[[], datetime]
Scores = dict[str, float]


async def evaluate_documents(path: Path, transcribe: Transcribe, *, clock: Clock) -> dict[str, Any]:
    """Build the report of `eval documents`. Raises InvalidRequest for an invalid folder.

    A file that fails is scored as empty text and reported with its error.
    """
    rows = []
    for file in read_documents_set(path):
        started_at = clock()
        # Scored as empty text on failure: leaving the file out would improve the mean.
        markdown, error = "", None
        try:
            markdown = await transcribe(file)
        except AnabranchError as failure:
            error = {"code": failure.code, "detail": failure.detail}
        seconds = round((clock() - started_at).total_seconds(), 3)
        scores = {name: round(value, 4) for name, value in score_file(file, markdown).items()}
        rows.append(
            {
                "file": file.name,
                "kind": file.truth_kind,
                "document_kinds": list(file.kinds),
                **scores,
                "seconds": seconds,
                "error": error,
            }
        )
    return build_documents_report(rows)


def score_file(file: TestFile, markdown: str) -> Scores:
    """Return the scores for the file's kind of ground truth; none if it has none or the kind is
    unknown.
    """
    scorer = _SCORERS.get(file.truth_kind or "")
    if file.truth is None or scorer is None:
        return {}
    return scorer(file.truth.read_text(encoding="utf-8", errors="replace"), markdown)


def _score_exact_text(truth: str, markdown: str) -> Scores:
    expected, actual = normalize_text(truth), strip_markdown(markdown)
    return {
        "cer": character_error_rate(expected, actual),
        "wer": word_error_rate(expected, actual),
        "word_f1": word_f1(expected, actual),
    }


def _score_words(truth: str, markdown: str) -> Scores:
    return {"word_f1": word_f1(strip_markdown(truth), strip_markdown(markdown))}


def _score_reference_markdown(truth: str, markdown: str) -> Scores:
    cells = list_cell_texts(truth)
    return _score_words(truth, markdown) | (
        {"cell_recall": cell_recall(cells, list_cell_texts(markdown))} if cells else {}
    )


def _score_table_cells(truth: str, markdown: str) -> Scores:
    cells = [cell["text"] for table in json.loads(truth)["tables"] for cell in table["cells"]]
    return {"cell_recall": cell_recall(cells, list_cell_texts(markdown))}


def _score_table_csv(truth: str, markdown: str) -> Scores:
    return {
        "cell_recall": cell_recall(
            [cell for row in csv.reader(io.StringIO(truth)) for cell in row],
            list_cell_texts(markdown),
        )
    }


def _score_unit_tests(truth: str, markdown: str) -> Scores:
    return {
        "checks_passed": compute_pass_rate(
            [json.loads(line) for line in truth.splitlines() if line.strip()], markdown
        )
    }


_SCORERS: Mapping[str, Callable[[str, str], Scores]] = {
    "exact-text": _score_exact_text,
    "reference-ocr-text": _score_words,
    "reference-markdown": _score_reference_markdown,
    "table-cells": _score_table_cells,
    "table-csv": _score_table_csv,
    "unit-tests": _score_unit_tests,
}


TEXT_MEASURES = ("cer", "wer", "word_f1", "cell_recall", "checks_passed")


def build_documents_report(files: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Build the report: means over files by kind of ground truth and by kind of document.

    A file may have several kinds of document. A failed file counts as empty text.
    """
    kinds: dict[str, list[Mapping[str, Any]]] = {}
    document_kinds: dict[str, list[Mapping[str, Any]]] = {}
    for file in files:
        kinds.setdefault(file["kind"] or "no-ground-truth", []).append(file)
        for kind in file["document_kinds"]:
            document_kinds.setdefault(kind, []).append(file)
    return {
        "schema_version": SCHEMA_VERSION,
        "kinds": {kind: _summarize_kind(kind_files) for kind, kind_files in sorted(kinds.items())},
        "document_kinds": {
            kind: _summarize_kind(kind_files) for kind, kind_files in sorted(document_kinds.items())
        },
        "files": list(files),
    }


def _summarize_kind(files: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    row: dict[str, Any] = {
        "files": len(files),
        "failed": sum(file["error"] is not None for file in files),
    }
    for measure in TEXT_MEASURES:
        values = [file[measure] for file in files if file.get(measure) is not None]
        row[measure] = round(fmean(values), 4) if values else None
    return row
