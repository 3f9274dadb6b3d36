"""Evaluate parsing and OCR against ground truth.

A test set is `manifest.jsonl` with the folders `files` and `ground_truth`. Texts are compared after
Unicode NFKC normalization, without Markdown syntax (which is not on the page) and with single
spaces. Error rates are Levenshtein distances divided by the length of the truth. A check, as in
olmOCR-bench, states that a text is present or absent, that two texts are in order, or that a table
cell has certain neighbors.
"""

from __future__ import annotations

import csv
import html
import io
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import fmean
from typing import Any

import jiwer
from rapidfuzz import fuzz

from evaluation.metrics import SCHEMA_VERSION
from evaluation.set_files import read_lines
from retrieval.ranking.quote_candidates import split_cells
from schemas.errors import AnabranchError

# Possessive and tempered patterns keep matching linear on hostile Markdown.
_LINK = re.compile(r"!?\[([^\[\]]*+)\]\([^\[)]*+\)")
_TAG = re.compile(r"</?[a-zA-Z][^<>]*>|<!--(?:(?!<!--).)*?-->", re.DOTALL)
_DELIMITER_ROW = re.compile(r"^(?=[^\n]*?--)(?:[^\S\n]|[:|-])++$", re.MULTILINE)
_LINE_MARK = re.compile(r"^[^\S\n]*+(?:#{1,6}\s++|>\s?|[-*+]\s++(?=\S)|```.*$)", re.MULTILINE)
_WORD = re.compile(r"\w+")
_CHARACTERS = jiwer.ReduceToListOfListOfChars()


def strip_markdown(text: str) -> str:
    """Return the words of a Markdown text as on the page, separated by single spaces."""
    text = _DELIMITER_ROW.sub(" ", _TAG.sub(" ", _LINK.sub(r"\1", text)))
    # NUL stands for an escaped bar while the cell borders are removed.
    text = _LINE_MARK.sub(" ", text).replace("\\|", "\0").replace("|", " ").replace("\0", "|")
    text = re.sub(
        r"\\([\\`*_{}\[\]()#+\-.!<>~$&])", r"\1", re.sub(r"(?<!\\)(?:\*{1,3}|__|`+|~~)", "", text)
    )
    # Entities last, so that `&lt;b&gt;` is not taken for a tag.
    return normalize_text(html.unescape(text))


def normalize_text(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).split())


def character_error_rate(truth: str, text: str) -> float:
    """Return the edits per character of the truth. Exceeds 1 for texts that are much too long.

    Returns 0 if both texts are empty, and 1 if only the truth is.
    """
    if not truth:
        return float(bool(text))
    # jiwer would strip the texts by default.
    return float(
        jiwer.cer(truth, text, reference_transform=_CHARACTERS, hypothesis_transform=_CHARACTERS)
    )


def word_error_rate(truth: str, text: str) -> float:
    return float(jiwer.wer(truth, text)) if truth.strip() else float(bool(text.strip()))


def tokenize(text: str) -> list[str]:
    return _WORD.findall(unicodedata.normalize("NFKC", text).lower())


def word_f1(truth: str, text: str) -> float:
    """Return the harmonic mean of precision and recall over bags of words."""
    expected, actual = Counter(tokenize(truth)), Counter(tokenize(text))
    n_shared = (expected & actual).total()
    return 2 * n_shared / (expected.total() + actual.total()) if expected or actual else 1.0


def cell_recall(truth: Sequence[str], cells: Sequence[str]) -> float:
    """Return the share of the non-empty true cells that occur among the cells, each matched once.

    Case, white space and Markdown syntax are ignored.
    """
    expected = Counter(key for cell in truth if (key := normalize_cell(cell)))
    actual = Counter(key for cell in cells if (key := normalize_cell(cell)))
    return (expected & actual).total() / expected.total() if expected else 1.0


def normalize_cell(text: str) -> str:
    return "".join(strip_markdown(text).split()).lower()


Grid = list[list[str]]

_TABLE_DELIMITER = re.compile(r"(?=[\s:|-]*?--)[\s:|-]*+$")
_HTML_TABLE = re.compile(r"<table\b(?:(?!<table\b).)*?</table>", re.DOTALL | re.IGNORECASE)
_HTML_ROW = re.compile(r"<tr\b(?:(?!<tr\b).)*?</tr>", re.DOTALL | re.IGNORECASE)
_HTML_CELL = re.compile(r"<(t[dh])\b[^<>]*>((?:(?!<t[dh]\b).)*?)</\1>", re.DOTALL | re.IGNORECASE)


def parse_tables(markdown: str) -> list[Grid]:
    """Return pipe tables and HTML tables as rows of cell texts. Spanned cells are not repeated."""
    tables: list[Grid] = []
    rows: Grid = []
    for line in [*markdown.splitlines(), ""]:
        if line.strip().startswith("|"):
            if not _TABLE_DELIMITER.match(line):
                rows.append(split_cells(line))
        elif rows:
            tables.append(rows)
            rows = []
    return [
        *tables,
        *(
            [[cell for _, cell in _HTML_CELL.findall(row)] for row in _HTML_ROW.findall(table)]
            for table in _HTML_TABLE.findall(markdown)
        ),
    ]


def list_cell_texts(markdown: str) -> list[str]:
    return [cell for grid in parse_tables(markdown) for row in grid for cell in row]


FindNeighbors = Callable[[Grid, int, int], Iterator[str]]


def _neighbor_at(rows: int, columns: int) -> FindNeighbors:
    def find(grid: Grid, row: int, column: int) -> Iterator[str]:
        row, column = row + rows, column + columns
        if 0 <= row < len(grid) and 0 <= column < len(grid[row]):
            yield grid[row][column]

    return find


NEIGHBORS: Mapping[str, FindNeighbors] = {
    "up": _neighbor_at(-1, 0),
    "down": _neighbor_at(1, 0),
    "left": _neighbor_at(0, -1),
    "right": _neighbor_at(0, 1),
    "top_heading": lambda grid, row, column: (
        cells[column] for cells in grid[:row] if column < len(cells)
    ),
    "left_heading": lambda grid, row, column: iter(grid[row][:column]),
}


def has_cell(markdown: str, check: Mapping[str, object]) -> bool:
    """Return whether any table has the check's cell with all given neighbors."""
    expected_cell = normalize_cell(str(check["cell"]))
    expected_neighbors = {
        side: normalize_cell(str(check[side])) for side in NEIGHBORS if check.get(side)
    }
    return any(
        normalize_cell(cell) == expected_cell
        and all(
            key in map(normalize_cell, NEIGHBORS[side](grid, row, column))
            for side, key in expected_neighbors.items()
        )
        for grid in parse_tables(markdown)
        for row, cells in enumerate(grid)
        for column, cell in enumerate(cells)
    )


# Typographic variants, which engines and ground truth write differently.
_ODD_CHARACTERS = str.maketrans(
    {"‘": "'", "’": "'", "“": '"', "”": '"', "–": "-", "—": "-", "‐": "-", "−": "-", "…": "..."}
)


def compute_pass_rate(checks: Sequence[Mapping[str, Any]], markdown: str) -> float:
    return sum(passes_check(check, markdown) for check in checks) / len(checks) if checks else 1.0


def passes_check(check: Mapping[str, Any], markdown: str) -> bool:
    """Return whether the transcription passes. Raises ValueError for an unknown type of check."""
    match check["type"]:
        case "present":
            return _find_text(check, check["text"], markdown) is not None
        case "absent":
            return _find_text(check, check["text"], markdown) is None
        case "order":
            first_position = _find_text(check, check["before"], markdown)
            second_position = _find_text(check, check["after"], markdown)
            return (
                first_position is not None
                and second_position is not None
                and first_position < second_position
            )
        case "table":
            return has_cell(markdown, check)
        case check_type:
            raise ValueError(f"unknown type of check {check_type!r}")


def _find_text(check: Mapping[str, Any], expected_text: str, markdown: str) -> int | None:
    """Return the offset of the text, with at most `max_diffs` edits.

    `first_n` and `last_n` limit the search to that many characters.
    """
    text, expected_text = _normalize(check, markdown), _normalize(check, expected_text)
    text = text[: check["first_n"]] if check.get("first_n") else text
    text = text[-check["last_n"] :] if check.get("last_n") else text
    if (position := text.find(expected_text)) >= 0:
        return position
    if not (max_edits := check.get("max_diffs", 0)) or not expected_text:
        return None
    # partial_ratio aligns the shorter text within the longer; see the length check below.
    alignment = fuzz.partial_ratio_alignment(
        expected_text, text, score_cutoff=100 * (1 - max_edits / len(expected_text))
    )
    return alignment.dest_start if alignment and len(text) >= len(expected_text) else None


def _normalize(check: Mapping[str, Any], text: str) -> str:
    text = strip_markdown(text).translate(_ODD_CHARACTERS)
    return text if check.get("case_sensitive", True) else text.lower()


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


_REMEDY = (
    "Add manifest.jsonl with one line per file: {file, mime, kinds, ground_truth, "
    "ground_truth_kind}."
)


def read_documents_set(folder: Path) -> list[TestFile]:
    """Read the test set. Raises InvalidRequest if the folder is invalid."""

    def parse_file(entry: Mapping[str, Any]) -> TestFile:
        name, truth = entry["file"], entry.get("ground_truth")
        return TestFile(
            folder / name,
            name,
            entry.get("mime"),
            entry.get("language"),
            tuple(entry.get("kinds") or ()),
            entry.get("ground_truth_kind"),
            folder / truth if truth else None,
        )

    return read_lines(folder / "manifest.jsonl", parse_file, _REMEDY)


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
