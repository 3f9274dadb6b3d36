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


def read_run(path: Path) -> dict[str, list[tuple[str, float]]]:
    """Query → (document, score) in the order of their ranks."""
    run: dict[str, list[tuple[int, str, float]]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        query, _, document, rank, score, _ = line.split()
        run.setdefault(query, []).append((int(rank), document, float(score)))
    return {query: [(document, score) for _, document, score in sorted(ranked)] for query, ranked in run.items()}
