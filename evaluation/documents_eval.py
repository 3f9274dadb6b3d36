"""Parsing and OCR against ground truth."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from evaluation.checks import share_passed
from evaluation.documents_set import TestFile, read_documents_set
from evaluation.report import documents_report
from evaluation.tables import cell_texts
from evaluation.text_metrics import cell_recall, character_error_rate, normalised, plain, word_error_rate, word_f1
from schemas.errors import AnabranchError

Transcribe = Callable[[TestFile], Awaitable[str]]
"""A file → its Markdown. Raises AnabranchError for one that cannot be read."""
Clock = Callable[[], datetime]
Measured = dict[str, float]


async def evaluate_documents(path: Path, transcribe: Transcribe, *, clock: Clock) -> dict[str, Any]:
    """The report of `eval documents`. A file that fails is measured as empty text and carries its error. Raises InvalidRequest for a folder of another shape."""
    return documents_report([await _evaluate(file, transcribe, clock) for file in read_documents_set(path)])


async def _evaluate(file: TestFile, transcribe: Transcribe, clock: Clock) -> dict[str, Any]:
    began = clock()
    markdown, error = "", None
    try:
        markdown = await transcribe(file)
    except AnabranchError as failure:
        error = {"code": failure.code, "detail": failure.detail}
    seconds = round((clock() - began).total_seconds(), 3)
    measured = {name: round(value, 4) for name, value in measure(file, markdown).items()}
    return {"file": file.name, "kind": file.truth_kind, "document_kinds": list(file.kinds), **measured, "seconds": seconds, "error": error}


def measure(file: TestFile, markdown: str) -> Measured:
    """By the kind of ground truth; nothing where there is none or it is of a kind that is not known."""
    by = _MEASURES.get(file.truth_kind or "")
    if file.truth is None or by is None:
        return {}
    return by(file.truth.read_text(encoding="utf-8", errors="replace"), markdown)


def _exact_text(truth: str, markdown: str) -> Measured:
    expected, found = normalised(truth), plain(markdown)
    return {"cer": character_error_rate(expected, found), "wer": word_error_rate(expected, found), "word_f1": word_f1(expected, found)}


def _words(truth: str, markdown: str) -> Measured:
    return {"word_f1": word_f1(plain(truth), plain(markdown))}


def _reference_markdown(truth: str, markdown: str) -> Measured:
    cells = cell_texts(truth)
    return _words(truth, markdown) | ({"cell_recall": cell_recall(cells, cell_texts(markdown))} if cells else {})


def _table_cells(truth: str, markdown: str) -> Measured:
    cells = [cell["text"] for table in json.loads(truth)["tables"] for cell in table["cells"]]
    return {"cell_recall": cell_recall(cells, cell_texts(markdown))}


def _table_csv(truth: str, markdown: str) -> Measured:
    return {"cell_recall": cell_recall([cell for row in csv.reader(io.StringIO(truth)) for cell in row], cell_texts(markdown))}


def _unit_tests(truth: str, markdown: str) -> Measured:
    return {"checks_passed": share_passed([json.loads(line) for line in truth.splitlines() if line.strip()], markdown)}


_MEASURES: Mapping[str, Callable[[str, str], Measured]] = {
    "exact-text": _exact_text,
    "reference-ocr-text": _words,
    "reference-markdown": _reference_markdown,
    "table-cells": _table_cells,
    "table-csv": _table_csv,
    "unit-tests": _unit_tests,
}
