"""TREC run files: one line `query Q0 document rank score tag` per document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from evaluation.metrics import Run

_MIN_SCORE_GAP = 1e-6


def write_run(path: Path, run: Run, tag: str) -> None:
    """Write a run with strictly decreasing scores, so that tools that sort only by score see the same
    order.

    White space in ids becomes `_`, since the format cannot represent it.
    """
    lines = (line for query, ranked in run.items() for line in _format_lines(query, ranked, tag))
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _format_lines(query: str, ranked: Sequence[tuple[str, float]], tag: str) -> Iterator[str]:
    written_score = float("inf")
    for rank, (document, score) in enumerate(ranked, 1):
        written_score = min(score, written_score - _MIN_SCORE_GAP)
        yield f"{_escape_token(query)} Q0 {_escape_token(document)} {rank} {written_score:.6f} {_escape_token(tag)}"


def _escape_token(text: str) -> str:
    return "_".join(text.split()) or "_"
