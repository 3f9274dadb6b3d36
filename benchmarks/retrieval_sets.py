"""Retrieval quality on test sets: all channels compared to single channels and to pairs, with
paired bootstrap intervals.

    python -m benchmarks.retrieval_sets --also semantic PATH/TO/faquad PATH/TO/cuad …

`--untitled` leaves the titles of the documents out.

`anabranch eval retrieval PATH [--channels lexical] [--profile rrf]` reports one configuration at a
time.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import asdict, replace
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
    "graph": (("graph",), "default"),
    "lexical and semantic": (("lexical", "semantic"), "default"),
    "lexical and graph": (("lexical", "graph"), "default"),
    "semantic and graph": (("semantic", "graph"), "default"),
    "hybrid": (None, "default"),
    "rrf": (None, "rrf"),
}
COMPARED_CONFIGURATIONS = ("lexical", "hybrid")


async def measure(
    path: Path, configurations: Sequence[str], *, titled: bool = True
) -> dict[str, Any]:
    async with start_ephemeral_stack(Settings()) as stack:
        failed: dict[str, str] = {}
        reports: dict[str, Any] = {}
        runs: dict[str, Any] = {}
        for configuration in configurations:
            channels, profile = CONFIGURATIONS[configuration]

            async def ingest(documents: Sequence[TestDocument]) -> None:
                if not reports:
                    if not titled:
                        documents = [replace(document, title=None) for document in documents]
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
    ndcg = {
        configuration: measure_queries(run, relevant, MEASURES["ndcg@10"])
        for configuration, run in runs.items()
    }
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
        "titled": titled,
        "hybrid_gain_ndcg@10": {
            configuration: asdict(paired_interval(by_query, ndcg["hybrid"]))
            for configuration, by_query in ndcg.items()
            if configuration != "hybrid"
        },
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
    parser.add_argument(
        "--untitled", action="store_true", help="Ingest the documents without their titles."
    )
    arguments = parser.parse_args()
    silence_logs()
    for folder in arguments.folders:
        print_report(
            {
                "benchmark": "retrieval_sets",
                **asyncio.run(
                    measure(
                        folder,
                        [*COMPARED_CONFIGURATIONS, *arguments.also],
                        titled=not arguments.untitled,
                    )
                ),
            }
        )


if __name__ == "__main__":
    main()
