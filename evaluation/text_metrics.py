"""Text metrics: error rates, word overlap, cell recall, and checks as in olmOCR-bench.

Error rates are Levenshtein distances divided by the length of the truth. Texts are compared after
Unicode NFKC normalization, without Markdown syntax (which is not on the page) and with single
spaces. A check states that a text is present or absent, that two texts are in order, or that a
table cell has certain neighbors.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jiwer
from rapidfuzz import fuzz

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
                rows.append(_split_row(line))
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


def _split_row(row: str) -> list[str]:
    parts = re.split(r"(?<!\\)\|", row.strip().removeprefix("|").removesuffix("|"))
    return [part.replace("\\|", "|").strip() for part in parts]


def list_cell_texts(markdown: str) -> list[str]:
    return [cell for grid in parse_tables(markdown) for row in grid for cell in row]


FindNeighbors = Callable[[Grid, int, int], Iterator[str]]


def _neighbor_at(rows: int, columns: int) -> FindNeighbors:
    def find(grid: Grid, row: int, column: int) -> Iterator[str]:
        row, column = row + rows, column + columns
        if 0 <= row < len(grid) and 0 <= column < len(grid[row]):
            yield grid[row][column]

    return find


def _cells_above(grid: Grid, row: int, column: int) -> Iterator[str]:
    return (grid[row_above][column] for row_above in range(row) if column < len(grid[row_above]))


def _cells_left_of(grid: Grid, row: int, column: int) -> Iterator[str]:
    return iter(grid[row][:column])


NEIGHBORS: Mapping[str, FindNeighbors] = {
    "up": _neighbor_at(-1, 0),
    "down": _neighbor_at(1, 0),
    "left": _neighbor_at(0, -1),
    "right": _neighbor_at(0, 1),
    "top_heading": _cells_above,
    "left_heading": _cells_left_of,
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
            first_position, second_position = (
                _find_text(check, check["before"], markdown),
                _find_text(check, check["after"], markdown),
            )
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
