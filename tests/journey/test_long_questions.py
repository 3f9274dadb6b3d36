"""The cost of a question is bounded by its first words."""

from __future__ import annotations

import asyncio
import itertools
import time

import pytest

from tests.support.api_world import ApiWorld

LONG_QUESTION = " ".join(f"lamp{number}" for number in range(1_000))
SHORT_QUESTION = "Who oils the pump of the third lighthouse in the winter?"
CONCURRENCY = 16
NUMBERS = itertools.count()
MAX_SLOWDOWN = 6.0
"""Times an ordinary question's. Before words were bounded it was several hundred."""
PROBE_NOISE_S = 0.3
RUNS = 3
"""Other work on the machine may delay one run, but an unbounded question delays each."""


async def measure_queries_s(world: ApiWorld, question: str) -> tuple[float, float]:
    """Return the time of `CONCURRENCY` queries and the longest wait of a probe beside them."""
    longest = 0.0

    async def probe() -> None:
        nonlocal longest
        while True:
            began = time.perf_counter()
            await world.http.get("/livez")
            longest = max(longest, time.perf_counter() - began)
            await asyncio.sleep(0.01)

    probing = asyncio.create_task(probe())
    began = time.perf_counter()
    answers = await asyncio.gather(
        *(
            # A repeated question would be answered from the cache.
            world.http.post("/v1/query", json={"query": f"{next(NUMBERS)} {question}"})
            for _ in range(CONCURRENCY)
        )
    )
    taken = time.perf_counter() - began
    probing.cancel()
    assert {answer.status_code for answer in answers} <= {200, 503}
    return taken, longest


async def test_long_questions_do_not_slow_down_others(world: ApiWorld) -> None:
    for number in range(8):
        await world.ingest_until_searchable(
            f"Lighthouse {number}: the pump is oiled by keeper {number} each morning.",
            f"{number}.md",
        )
    await measure_queries_s(world, SHORT_QUESTION)  # engines and statements are warm
    measurements = []
    for _ in range(RUNS):
        ordinary, probe = await measure_queries_s(world, SHORT_QUESTION)
        long, probe_meanwhile = await measure_queries_s(world, LONG_QUESTION)
        measurements.append((ordinary, long, probe, probe_meanwhile))
        if (
            long < MAX_SLOWDOWN * ordinary + 1
            and probe_meanwhile < MAX_SLOWDOWN * probe + PROBE_NOISE_S
        ):
            return
    pytest.fail(f"Long questions delay others: {measurements}")
