"""Test sets through the real pipeline once each, then asked by words alone and by all channels, with a paired bootstrap interval of the gain.

    python -m benchmarks.retrieval_sets PATH/TO/faquad PATH/TO/cuad …

`anabranch eval retrieval PATH [--channels lexical] [--profile rrf]` gives the same figures one at a time.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from anabranch.composition.overrides import now
from anabranch.evaluating import ingested, ranked_documents
from anabranch.settings import Settings
from anabranch.throwaway import trial
from benchmarks.harness import quiet, report
from evaluation.bootstrap import paired_interval
from evaluation.metrics import MEASURES, per_query
from evaluation.retrieval_eval import evaluate_retrieval
from evaluation.retrieval_set import TestDocument, read_retrieval_set
from schemas.questions import Channel

WAYS: dict[str, tuple[tuple[Channel, ...] | None, str]] = {
    "lexical": (("lexical",), "default"),
    "semantic": (("semantic",), "default"),
    "hybrid": (None, "default"),
    "hybrid without graph": (("lexical", "semantic"), "default"),
    "rrf": (None, "rrf"),
}
COMPARED = ("lexical", "hybrid")


async def measure(path: Path, ways: Sequence[str]) -> dict[str, Any]:
    async with trial(Settings()) as running:
        failed: dict[str, str] = {}
        found: dict[str, Any] = {}
        runs: dict[str, Any] = {}
        for way in ways:
            channels, profile = WAYS[way]

            async def ingest(documents: Sequence[TestDocument]) -> None:
                if not found:
                    failed.update(await ingested(running, documents))

            async def ask(text: str, wanted: Sequence[Channel] | None) -> list[tuple[str, float]]:
                return await ranked_documents(running, text, wanted, profile)  # noqa: B023

            found[way], runs[way] = await evaluate_retrieval(path, ingest, ask, channels=channels, clock=now, profile=profile)
    first = found["lexical"]
    relevant = read_retrieval_set(path).relevant
    gain = paired_interval(*(per_query(runs[way], relevant, MEASURES["ndcg@10"]) for way in ("lexical", "hybrid")))
    return {
        "set": first["set"], "documents": first["documents"], "queries": first["queries"], "ingest": first["ingest"], "failed": failed,
        "ways": {way: {"metrics": figures["metrics"], "latency_ms": figures["latency_ms"]} for way, figures in found.items()},
        "hybrid_gain_ndcg@10": asdict(gain),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--also", choices=[way for way in WAYS if way not in COMPARED], action="append", default=[], help="ask in this way too")
    given = parser.parse_args()
    quiet()
    for folder in given.folders:
        report({"benchmark": "retrieval_sets", **asyncio.run(measure(folder, [*COMPARED, *given.also]))})


if __name__ == "__main__":
    main()
