"""TREC run files: `query Q0 document rank score tag`, one line a document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from evaluation.metrics import Run

_STEP = 1e-6


def write_run(path: Path, run: Run, tag: str) -> None:
    """Scores fall strictly, so that tools which sort by score alone see the same order. White space in an id becomes `_`: the format has no way to keep it."""
    lines = (line for query, ranked in run.items() for line in _lines(query, ranked, tag))
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _lines(query: str, ranked: Sequence[tuple[str, float]], tag: str) -> Iterator[str]:
    last = float("inf")
    for rank, (document, score) in enumerate(ranked, 1):
        last = min(score, last - _STEP)
        yield f"{_token(query)} Q0 {_token(document)} {rank} {last:.6f} {_token(tag)}"


def _token(text: str) -> str:
    return "_".join(text.split()) or "_"
