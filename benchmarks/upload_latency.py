"""From the log's word that an upload is there to the moment it is searchable: one page of 500 words, everything warm and idle.

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

from anabranch.composition.overrides import NONE, Overrides
from benchmarks.harness import Pipeline, Stopwatch, pipeline, report, text_documents
from benchmarks.nulls import FlatEmbedder, NullParser, WordChunker
from engines.extract.null import NullExtractor

WARM_UP = 5
WORDS = 500
PROSE = Path(__file__).parents[1] / "samples" / "source" / "annual-report-2025.md"


def pages(count: int, words: int) -> list[str]:
    """Different pages of the same prose: its sentences, shuffled."""
    sentences = [sentence for sentence in re.split(r"(?<=[.?!])\s+", PROSE.read_text()) if "|" not in sentence and "#" not in sentence]
    return [_page(random.Random(seed), sentences, words) for seed in range(count)]


def _page(mood: random.Random, sentences: list[str], words: int) -> str:
    page: list[str] = []
    while len(page) < words:
        page += mood.choice(sentences).split()
    return " ".join(page[:words])


async def measure(repeats: int, null: bool) -> dict[str, Any]:
    overrides = Overrides(parser=NullParser(), chunker=WordChunker(), embedder=FlatEmbedder(), extractor=NullExtractor()) if null else NONE
    records = await text_documents(pages(repeats + WARM_UP, WORDS))
    async with pipeline(overrides) as bench:
        seconds = [await one(bench, [record], number + 1) for number, record in enumerate(records)][WARM_UP:]
    ordered = sorted(seconds)
    return {
        "benchmark": "upload_latency",
        "engines": "null" if null else "local",
        "repeats": repeats,
        "ms": {"p50": 1000 * statistics.median(ordered), "p95": 1000 * ordered[int(0.95 * (repeats - 1))]},
    }


async def one(bench: Pipeline, record: list[Any], count: int) -> float:
    await bench.push(record)
    with Stopwatch() as watch:
        await bench.searchable(count, poll_s=0.001)
    await asyncio.sleep(0.05)
    return watch.seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--null", action="store_true", help="null engines in place of the local models")
    given = parser.parse_args()
    report(asyncio.run(measure(given.repeats, given.null)))


if __name__ == "__main__":
    main()
