"""Time from the append of a page of 500 words to its visibility, on a warm, idle system.

python -m benchmarks.upload_latency [--null] [--repeats 40]
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import statistics
from pathlib import Path
from typing import Any

from anabranch.config.overrides import NO_OVERRIDES, Overrides
from benchmarks.harness import (
    BenchmarkPipeline,
    Timer,
    make_text_records,
    print_report,
    run_pipeline,
)
from benchmarks.null_engines import FlatEmbedder, NullExtractor, NullParser, WordChunker

WARM_UP = 5
WORDS = 500
PROSE = Path(__file__).parents[1] / "samples" / "source" / "annual-report-2025.md"


def make_pages(count: int, words: int) -> list[str]:
    """Make different pages from the shuffled sentences of one text."""
    sentences = [
        sentence
        for sentence in re.split(r"(?<=[.?!])\s+", PROSE.read_text())
        if "|" not in sentence and "#" not in sentence
    ]
    pages = []
    for seed in range(count):
        rng, page = random.Random(seed), list[str]()
        while len(page) < words:
            page += rng.choice(sentences).split()
        pages.append(" ".join(page[:words]))
    return pages


async def measure(repeats: int, null: bool) -> dict[str, Any]:
    overrides = (
        Overrides(
            parser=NullParser(),
            chunker=WordChunker(),
            embedder=FlatEmbedder(),
            extractor=NullExtractor(),
        )
        if null
        else NO_OVERRIDES
    )
    records = await make_text_records(make_pages(repeats + WARM_UP, WORDS))
    async with run_pipeline(overrides) as bench:
        seconds = [
            await measure_upload(bench, [record], number + 1)
            for number, record in enumerate(records)
        ][WARM_UP:]
    sorted_seconds = sorted(seconds)
    return {
        "benchmark": "upload_latency",
        "engines": "null" if null else "local",
        "repeats": repeats,
        "ms": {
            "p50": 1000 * statistics.median(sorted_seconds),
            "p95": 1000 * sorted_seconds[int(0.95 * (repeats - 1))],
        },
    }


async def measure_upload(bench: BenchmarkPipeline, record: list[Any], count: int) -> float:
    await bench.push(record)
    with Timer() as timer:
        await bench.wait_until_searchable(count, poll_s=0.001)
    await asyncio.sleep(0.05)
    return timer.seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument(
        "--null", action="store_true", help="Use null engines instead of the local models."
    )
    arguments = parser.parse_args()
    print_report(asyncio.run(measure(arguments.repeats, arguments.null)))


if __name__ == "__main__":
    main()
