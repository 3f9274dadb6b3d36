"""Evaluate retrieval on a test set, and write its rankings as a TREC run file.

A test set is `corpus.jsonl`, `queries.jsonl`, `qrels.tsv`, and optionally `meta.json`. A line of a
run file is `query Q0 document rank score tag`.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from evaluation.metrics import SCHEMA_VERSION, Run, compute_percentiles, measure_run
from evaluation.set_files import make_set_error, read_lines, read_text
from schemas.channels import Channel

_EXPECTED_FORMAT = (
    "The folder needs corpus.jsonl (lines of {id, title, text}), "
    "queries.jsonl (lines of {id, text}) and qrels.tsv (query-id, corpus-id, score)."
)


@dataclass(frozen=True, slots=True)
class TestDocument:
    # pytest would collect a class whose name begins with Test.
    __test__ = False

    id: str
    title: str | None
    text: str


@dataclass(frozen=True, slots=True)
class TestQuery:
    __test__ = False

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class RetrievalSet:
    """`relevant` has the documents with a score of 1 or more by query. Unlisted pairs are not
    relevant.
    """

    name: str
    language: str | None
    documents: tuple[TestDocument, ...]
    queries: tuple[TestQuery, ...]
    relevant: Mapping[str, Mapping[str, int]]


def read_retrieval_set(folder: Path) -> RetrievalSet:
    """Read the test set. Raises InvalidRequest with the file and line."""
    meta_path = folder / "meta.json"
    meta = json.loads(meta_path.read_text(encoding="utf-8")) if meta_path.is_file() else {}
    documents = read_lines(
        folder / "corpus.jsonl",
        lambda line: TestDocument(str(line["id"]), line.get("title") or None, str(line["text"])),
        _EXPECTED_FORMAT,
    )
    queries = read_lines(
        folder / "queries.jsonl",
        lambda line: TestQuery(str(line["id"]), str(line["text"])),
        _EXPECTED_FORMAT,
    )
    relevant = _read_relevant(folder / "qrels.tsv")
    language = meta.get("language")
    return RetrievalSet(folder.name, language, tuple(documents), tuple(queries), relevant)


def _read_relevant(path: Path) -> dict[str, dict[str, int]]:
    relevant: dict[str, dict[str, int]] = {}
    # The first line names the columns.
    for number, line in enumerate(read_text(path, _EXPECTED_FORMAT).splitlines()[1:], 2):
        parts = line.split("\t")
        # Published sets also have negative scores.
        if len(parts) != 3 or not parts[2].strip().lstrip("-").isdigit():
            raise make_set_error(
                f"{path.name} line {number} is not query-id, corpus-id and score separated by "
                "tabs.",
                _EXPECTED_FORMAT,
            )
        if int(parts[2]) >= 1:
            relevant.setdefault(parts[0], {})[parts[1]] = int(parts[2])
    return relevant


Ingest = Callable[[Sequence[TestDocument]], Awaitable[None]]
"""Ingests documents and returns when all are searchable. Their ids become external ids."""
SearchDocuments = Callable[[str, Sequence[Channel] | None], Awaitable[Sequence[tuple[str, float]]]]
"""Searches in the given channels (None: all). Returns (external id, score), best first."""
Clock = Callable[[], datetime]


async def evaluate_retrieval(
    test_set: RetrievalSet,
    ingest: Ingest,
    search: SearchDocuments,
    *,
    channels: Sequence[Channel] | None,
    clock: Clock,
    profile: str = "default",
) -> tuple[dict[str, Any], Run]:
    """Build the report of `eval retrieval`, and return it with the run.

    Queries run one after the other, so that each latency is that of a single query.
    """
    started_at = clock()
    await ingest(test_set.documents)
    ingest_seconds = (clock() - started_at).total_seconds()
    run: dict[str, list[tuple[str, float]]] = {}
    latencies_ms = []
    for query in test_set.queries:
        started_at = clock()
        run[query.id] = list(await search(query.text, channels))
        latencies_ms.append((clock() - started_at).total_seconds() * 1000)
    report = build_retrieval_report(test_set, run, latencies_ms, ingest_seconds, profile, channels)
    return report, run


def build_retrieval_report(
    test_set: RetrievalSet,
    run: Run,
    latencies_ms: Sequence[float],
    ingest_seconds: float,
    profile: str,
    channels: Sequence[Channel] | None,
) -> dict[str, Any]:
    rate = len(test_set.documents) / ingest_seconds if ingest_seconds > 0 else None
    return {
        "schema_version": SCHEMA_VERSION,
        "set": test_set.name,
        "profile": profile,
        "channels": list(channels) if channels else None,
        "documents": len(test_set.documents),
        "queries": len(test_set.queries),
        "metrics": measure_run(run, test_set.relevant),
        "latency_ms": compute_percentiles(latencies_ms),
        "ingest": {
            "seconds": round(ingest_seconds, 3),
            "documents_per_second": round(rate, 3) if rate else None,
        },
    }


_MIN_SCORE_GAP = 1e-6


def write_run(path: Path, run: Run, tag: str) -> None:
    """Write a run with strictly decreasing scores.

    Tools that sort only by score thus see the same order.

    White space in ids becomes `_`, since the format cannot represent it.
    """
    lines = []
    for query, ranked in run.items():
        written_score = float("inf")
        for rank, (document, score) in enumerate(ranked, 1):
            # trec_eval ignores the rank column, so ties would be reordered.
            written_score = min(score, written_score - _MIN_SCORE_GAP)
            lines.append(
                f"{_escape_token(query)} Q0 {_escape_token(document)} {rank} {written_score:.6f} "
                f"{_escape_token(tag)}\n"
            )
    path.write_text("".join(lines), encoding="utf-8")


def _escape_token(text: str) -> str:
    return "_".join(text.split()) or "_"
