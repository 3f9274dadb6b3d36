"""Unit tests of a transcription in the manner of olmOCR-bench: a text present or absent, two texts in order, a table cell with its neighbours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rapidfuzz import fuzz

from evaluation.tables import has_cell
from evaluation.text_metrics import plain

_ODD_CHARACTERS = str.maketrans({"‘": "'", "’": "'", "“": '"', "”": '"', "–": "-", "—": "-", "‐": "-", "−": "-", "…": "..."})


def share_passed(checks: Sequence[Mapping[str, Any]], markdown: str) -> float:
    return sum(passes(check, markdown) for check in checks) / len(checks) if checks else 1.0


def passes(check: Mapping[str, Any], markdown: str) -> bool:
    """Raises ValueError for a type of check that is not known."""
    match check["type"]:
        case "present":
            return _place(check, check["text"], markdown) is not None
        case "absent":
            return _place(check, check["text"], markdown) is None
        case "order":
            before, after = _place(check, check["before"], markdown), _place(check, check["after"], markdown)
            return before is not None and after is not None and before < after
        case "table":
            return has_cell(markdown, check)
        case other:
            raise ValueError(f"no check is called {other!r}")


def _place(check: Mapping[str, Any], wanted: str, markdown: str) -> int | None:
    """Where the text stands, with at most `max_diffs` edits; `first_n` and `last_n` narrow the search to that many characters."""
    text, wanted = _comparable(check, markdown), _comparable(check, wanted)
    text = text[: check["first_n"]] if check.get("first_n") else text
    text = text[-check["last_n"] :] if check.get("last_n") else text
    if (place := text.find(wanted)) >= 0:
        return place
    if not (edits := check.get("max_diffs", 0)) or not wanted:
        return None
    found = fuzz.partial_ratio_alignment(wanted, text, score_cutoff=100 * (1 - edits / len(wanted)))
    return found.dest_start if found and len(text) >= len(wanted) else None


def _comparable(check: Mapping[str, Any], text: str) -> str:
    text = plain(text).translate(_ODD_CHARACTERS)
    return text if check.get("case_sensitive", True) else text.lower()
