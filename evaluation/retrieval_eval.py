"""Evaluate retrieval through the real pipeline: ingest a test set, run its queries, compute
metrics.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from evaluation.metrics import Run
from evaluation.report import build_retrieval_report
from evaluation.retrieval_set import RetrievalSet, TestDocument, read_retrieval_set
from schemas.channels import Channel

Ingest = Callable[[Sequence[TestDocument]], Awaitable[None]]
"""Ingests documents and returns when all are searchable. The document's id becomes its external id."""
SearchDocuments = Callable[[str, Sequence[Channel] | None], Awaitable[Sequence[tuple[str, float]]]]
"""Searches a question in the given channels (None: all). Returns (external id, score), best first."""
Clock = Callable[[], datetime]


async def evaluate_retrieval(
    path: Path,
    ingest: Ingest,
    search: SearchDocuments,
    *,
    channels: Sequence[Channel] | None,
    clock: Clock,
    profile: str = "default",
) -> tuple[dict[str, Any], Run]:
    """Build the report of `eval retrieval`, and return it with the run.

    Raises InvalidRequest for an invalid folder.

    Queries run one after the other, so that each latency is that of a single query.
    """
    test_set = read_retrieval_set(path)
    started_at = clock()
    await ingest(test_set.documents)
    ingest_seconds = (clock() - started_at).total_seconds()
    run, latencies = await _run_queries(test_set, search, channels, clock)
    return build_retrieval_report(test_set, run, latencies, ingest_seconds, profile, channels), run


async def _run_queries(
    test_set: RetrievalSet,
    search: SearchDocuments,
    channels: Sequence[Channel] | None,
    clock: Clock,
) -> tuple[dict[str, list[tuple[str, float]]], list[float]]:
    run: dict[str, list[tuple[str, float]]] = {}
    latencies = []
    for query in test_set.queries:
        started_at = clock()
        run[query.id] = list(await search(query.text, channels))
        latencies.append((clock() - started_at).total_seconds() * 1000)
    return run, latencies
