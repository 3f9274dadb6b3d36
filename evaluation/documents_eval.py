"""Evaluate parsing and OCR against ground truth."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from evaluation.checks import compute_pass_rate
from evaluation.documents_set import TestFile, read_documents_set
from evaluation.report import build_documents_report
from evaluation.tables import list_cell_texts
from evaluation.text_metrics import (
    cell_recall,
    character_error_rate,
    normalize_text,
    strip_markdown,
    word_error_rate,
    word_f1,
)
from schemas.errors import AnabranchError

Transcribe = Callable[[TestFile], Awaitable[str]]
"""Converts a file to Markdown. Raises AnabranchError for an unreadable file."""
Clock = Callable[[], datetime]
Scores = dict[str, float]


async def evaluate_documents(path: Path, transcribe: Transcribe, *, clock: Clock) -> dict[str, Any]:
    """Build the report of `eval documents`. Raises InvalidRequest for an invalid folder.

    A file that fails is scored as empty text and reported with its error.
    """
    return build_documents_report(
        [await _evaluate_file(file, transcribe, clock) for file in read_documents_set(path)]
    )


async def _evaluate_file(file: TestFile, transcribe: Transcribe, clock: Clock) -> dict[str, Any]:
    started_at = clock()
    markdown, error = "", None
    try:
        markdown = await transcribe(file)
    except AnabranchError as failure:
        error = {"code": failure.code, "detail": failure.detail}
    seconds = round((clock() - started_at).total_seconds(), 3)
    scores = {name: round(value, 4) for name, value in score_file(file, markdown).items()}
    return {
        "file": file.name,
        "kind": file.truth_kind,
        "document_kinds": list(file.kinds),
        **scores,
        "seconds": seconds,
        "error": error,
    }


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
