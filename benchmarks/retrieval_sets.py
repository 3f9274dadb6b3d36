"""Retrieval quality on test sets: lexical search compared to all channels, with a paired bootstrap
interval.

    python -m benchmarks.retrieval_sets PATH/TO/faquad PATH/TO/cuad …

`anabranch eval retrieval PATH [--channels lexical] [--profile rrf]` reports one configuration at a
time.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from anabranch.config.settings import Settings
from anabranch.eval.runner import ingest_documents, rank_documents, start_ephemeral_stack
from benchmarks.harness import print_report, silence_logs
from evaluation.metrics import MEASURES, measure_queries, paired_interval
from evaluation.retrieval_eval import TestDocument, evaluate_retrieval, read_retrieval_set
from schemas.channels import Channel
from schemas.timestamps import utc_now

CONFIGURATIONS: dict[str, tuple[tuple[Channel, ...] | None, str]] = {
    "lexical": (("lexical",), "default"),
    "semantic": (("semantic",), "default"),
    "hybrid": (None, "default"),
    "hybrid without graph": (("lexical", "semantic"), "default"),
    "rrf": (None, "rrf"),
}
COMPARED_CONFIGURATIONS = ("lexical", "hybrid")


async def measure(path: Path, configurations: Sequence[str]) -> dict[str, Any]:
    async with start_ephemeral_stack(Settings()) as stack:
        failed: dict[str, str] = {}
        reports: dict[str, Any] = {}
        runs: dict[str, Any] = {}
        for configuration in configurations:
            channels, profile = CONFIGURATIONS[configuration]

            async def ingest(documents: Sequence[TestDocument]) -> None:
                if not reports:
                    failed.update(await ingest_documents(stack, documents))

            async def ask(
                text: str, requested_channels: Sequence[Channel] | None
            ) -> list[tuple[str, float]]:
                return await rank_documents(stack, text, requested_channels, profile)  # noqa: B023

            reports[configuration], runs[configuration] = await evaluate_retrieval(
                path, ingest, ask, channels=channels, clock=utc_now, profile=profile
            )
    lexical_report = reports["lexical"]
    relevant = read_retrieval_set(path).relevant
    gain = paired_interval(
        *(
            measure_queries(runs[configuration], relevant, MEASURES["ndcg@10"])
            for configuration in ("lexical", "hybrid")
        )
    )
    return {
        "set": lexical_report["set"],
        "documents": lexical_report["documents"],
        "queries": lexical_report["queries"],
        "ingest": lexical_report["ingest"],
        "failed": failed,
        "configurations": {
            configuration: {"metrics": figures["metrics"], "latency_ms": figures["latency_ms"]}
            for configuration, figures in reports.items()
        },
        "hybrid_gain_ndcg@10": asdict(gain),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument(
        "--also",
        choices=[
            configuration
            for configuration in CONFIGURATIONS
            if configuration not in COMPARED_CONFIGURATIONS
        ],
        action="append",
        default=[],
        help="Also measure this configuration.",
    )
    arguments = parser.parse_args()
    silence_logs()
    for folder in arguments.folders:
        print_report(
            {
                "benchmark": "retrieval_sets",
                **asyncio.run(measure(folder, [*COMPARED_CONFIGURATIONS, *arguments.also])),
            }
        )


if __name__ == "__main__":
    main()
