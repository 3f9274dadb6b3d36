"""Questions a second that the API and Postgres answer together, and the CPU that each one costs.

Closed-loop clients send `/v1/search` requests, each question once, so that no answer comes from the
cache. Each kind of text is measured without and with the reranker. The embedder returns a fixed
vector. The API runs in a process of its own; the CPU of the clients is not counted.

    python -m benchmarks.question_rate --documents 12500 --questions 400 --clients 8
    python -m benchmarks.question_rate --texts natural --folder /var/tmp/questions

With `--folder` the databases stay there, and a later run measures them again.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2

from anabranch.config.overrides import Overrides
from anabranch.config.settings import Settings
from benchmarks.harness import (
    BenchmarkPipeline,
    make_natural_texts,
    make_synthetic_texts,
    make_text_records,
    print_report,
    run_pipeline,
    start_postgres,
)
from benchmarks.null_engines import NullExtractor, NullParser, WordChunker
from benchmarks.processes import measure_tree_cpu
from benchmarks.search_latency import (
    FixedEmbedder,
    StatefulEmbedder,
    compute_quantiles,
    draw_queries,
)
from benchmarks.service_processes import ServiceProcess, run_api, run_service
from retrieval.question.words import FUNCTION_WORDS
from sql.index.lexical import compact_lexical
from sql.index.search import ensure_vector_index

TEXTS = {"synthetic": make_synthetic_texts, "natural": make_natural_texts}
PROFILES = {"unreranked": "rerank: {reranker: none}\n", "reranked": "rerank: {}\n"}
WORDS = 1200
"""Words of a document, which are 8 chunks."""
CONNECTIONS = 32
"""Connections of the API to the database, so that eight questions run at a time."""


def make_overrides() -> Overrides:
    return Overrides(
        parser=NullParser(),
        chunker=WordChunker(),
        embedder=StatefulEmbedder(),
        extractor=NullExtractor(),
    )


async def build_index(folder: Path, texts: Sequence[str]) -> None:
    """Load the texts into the database in `folder`, unless an earlier run has."""
    marker = folder / "loaded"
    if marker.exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    async with run_pipeline(make_overrides(), maintenance_s=3600, folder=folder) as bench:
        await bench.load(await make_text_records(texts))
        await finish_index(bench)
    profiles = folder / "profiles"
    profiles.mkdir()
    for name, text in PROFILES.items():
        (profiles / f"{name}.yaml").write_text(text)
    marker.touch()


async def finish_index(bench: BenchmarkPipeline) -> None:
    pool = bench.worker.storage.pool
    while await compact_lexical(pool, bench.worker.generation.name):
        pass
    await ensure_vector_index(pool, bench.worker.generation)
    await pool.execute("vacuum analyze")


def make_question_overrides() -> Overrides:
    """Make engines of which the embedder returns the same vector for every question."""
    embedder = StatefulEmbedder()
    query = asyncio.run(embedder.embed_query("question"))
    return replace(make_overrides(), embedder=FixedEmbedder(embedder, query))


async def ask(
    api: ServiceProcess, questions: Sequence[str], profile: str, clients: int
) -> list[float]:
    """Send the questions, as many at a time as there are clients; return the latencies in ms."""
    remaining, latencies_ms = iter(questions), []
    url, headers = api.ready

    async def run_client() -> None:
        async with httpx2.AsyncClient(base_url=url, headers=headers, timeout=120) as client:
            for question in remaining:
                started_at = time.perf_counter()
                response = await client.post(
                    "/v1/search", json={"query": question, "k": 10, "profile": profile}
                )
                response.raise_for_status()
                latencies_ms.append(1000 * (time.perf_counter() - started_at))

    await asyncio.gather(*(run_client() for _ in range(clients)))
    return latencies_ms


async def measure_rate(
    api: ServiceProcess,
    postmaster: int,
    questions: Sequence[str],
    profile: str,
    clients: int,
    warm_up: int,
) -> dict[str, float]:
    await ask(api, questions[:warm_up], profile, clients)
    started_at = time.perf_counter()
    cpu_s = (api.measure_cpu(), measure_tree_cpu(postmaster))
    latencies_ms = await ask(api, questions[warm_up:], profile, clients)
    seconds, count = time.perf_counter() - started_at, len(latencies_ms)
    api_ms = 1000 * (api.measure_cpu() - cpu_s[0]) / count
    postgres_ms = 1000 * (measure_tree_cpu(postmaster) - cpu_s[1]) / count
    return {
        "questions_per_second": count / seconds,
        "api_cpu_ms": api_ms,
        "postgres_cpu_ms": postgres_ms,
        "questions_per_second_of_two_idle_cores": 2000 / (api_ms + postgres_ms),
        **compute_quantiles(latencies_ms),
    }


async def measure_text(
    kind: str, folder: Path, arguments: argparse.Namespace
) -> dict[str, list[dict[str, float]]]:
    texts = TEXTS[kind](arguments.documents, WORDS)
    await build_index(folder, texts)
    size = arguments.questions + arguments.warm_up
    drawn = draw_distinct_questions(texts, size * len(PROFILES) * arguments.rounds)
    figures: dict[str, list[dict[str, float]]] = {profile: [] for profile in PROFILES}
    settings = Settings(data_dir=folder, database={"api_pool": CONNECTIONS})
    async with (
        start_postgres(folder) as (_, server),
        run_service(run_api, settings, server.dsn, make_question_overrides) as api,
    ):
        postmaster = int((server.data / "postmaster.pid").read_text().splitlines()[0])
        for _ in range(arguments.rounds):
            for profile in PROFILES:
                batch, drawn = drawn[:size], drawn[size:]
                figures[profile].append(
                    await measure_rate(
                        api, postmaster, batch, profile, arguments.clients, arguments.warm_up
                    )
                )
    return figures


def draw_distinct_questions(texts: Sequence[str], count: int) -> list[str]:
    """Draw six words from one document for each question, function words aside."""
    stop_words = FUNCTION_WORDS["en"]
    content = [
        " ".join(word for word in text.split() if word not in stop_words) for text in texts[:2000]
    ]
    return list(dict.fromkeys(draw_queries(content, 2 * count)))[:count]


async def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="anabranch-bench-") as temporary_folder:
        Path(temporary_folder).chmod(0o755)
        folder = arguments.folder or Path(temporary_folder)
        return {
            kind: await measure_text(kind, folder / f"{kind}-{arguments.documents}", arguments)
            for kind in arguments.texts
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=12_500)
    parser.add_argument("--questions", type=int, default=400, help="Questions in each round.")
    parser.add_argument(
        "--warm-up", type=int, default=50, help="Questions before those of each round."
    )
    parser.add_argument("--clients", type=int, default=8, help="Requests in flight.")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--texts", nargs="+", choices=list(TEXTS), default=list(TEXTS))
    parser.add_argument("--folder", type=Path, help="Keep the databases here and reuse them.")
    arguments = parser.parse_args()
    figures = asyncio.run(measure(arguments))
    print_report(
        {
            "benchmark": "question_rate",
            **{name: getattr(arguments, name) for name in ("documents", "questions", "clients")},
            **figures,
        }
    )


if __name__ == "__main__":
    main()
