"""Reports of `eval retrieval` and `eval documents` as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from evaluation.metrics import Run, measure_run
from evaluation.retrieval_set import RetrievalSet
from schemas.channels import Channel

SCHEMA_VERSION = 1
TEXT_MEASURES = ("cer", "wer", "word_f1", "cell_recall", "checks_passed")


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


def compute_percentiles(values: Sequence[float]) -> dict[str, float | None]:
    if not values:
        return {"p50": None, "p95": None}
    return {
        "p50": round(float(np.percentile(values, 50)), 2),
        "p95": round(float(np.percentile(values, 95)), 2),
    }


def build_documents_report(files: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Build the report: means over the files of each kind of ground truth and of each kind of document.

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
