"""Checks of a transcription, as in olmOCR-bench.

A text is present or absent, two texts are in order, or a table cell has certain neighbors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rapidfuzz import fuzz

from evaluation.tables import has_cell
from evaluation.text_metrics import strip_markdown

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
    alignment = fuzz.partial_ratio_alignment(
        expected_text, text, score_cutoff=100 * (1 - max_edits / len(expected_text))
    )
    return alignment.dest_start if alignment and len(text) >= len(expected_text) else None


def _normalize(check: Mapping[str, Any], text: str) -> str:
    text = strip_markdown(text).translate(_ODD_CHARACTERS)
    return text if check.get("case_sensitive", True) else text.lower()
