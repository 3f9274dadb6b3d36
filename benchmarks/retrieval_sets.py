"""Retrieval quality on test sets: all channels compared to single channels and to pairs, with
paired bootstrap intervals.

    python -m benchmarks.retrieval_sets --also semantic PATH/TO/faquad PATH/TO/cuad …

`--ablations` measures every configuration on the same index, and `--chunking NAME` the hybrid on an
index of its own with that chunking profile. `--processes N` asks N configurations at a time, on a
machine with that many idle cores; Postgres, which they share, is then not counted. `--results FILE`
stores the reports by set; `--table` and `--plot FILE` show what is stored there, and need no set:

    python -m benchmarks.retrieval_sets --ablations --chunking large --chunking small \\
        --results benchmarks/results/ablations.json PATH/TO/cuad
    python -m benchmarks.retrieval_sets --results benchmarks/results/ablations.json \\
        --table --plot docs/assets/ablations.svg

`anabranch eval retrieval PATH [--channels lexical] [--profile rrf]` reports one configuration at a
time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from anabranch.composition.retriever import prepare_retriever
from anabranch.composition.storage import open_unprepared_storage
from anabranch.config.profiles import load_all_profiles
from anabranch.config.settings import ChunkSettings, Settings
from anabranch.eval.runner import (
    EphemeralStack,
    ingest_documents,
    rank_documents,
    start_ephemeral_stack,
)
from benchmarks.ablation_report import draw_plot, format_tables
from benchmarks.harness import Timer, fetch_postmaster, print_report, silence_logs
from benchmarks.processes import measure_tree_cpu
from evaluation.metrics import (
    MEASURES,
    Run,
    compute_percentiles,
    measure_queries,
    measure_run,
    paired_interval,
)
from evaluation.retrieval_eval import RetrievalSet, TestQuery, read_retrieval_set
from retrieval.retriever import Retriever
from schemas.generations import Generation
from schemas.questions import SearchRequest
from sql.database import open_pool
from sql.index.search import PgSearch

NOT_RERANKED = {"rerank": {"reranker": "none"}}
PAGERANK = {"graph": {"strategy": "pagerank"}}

CONFIGURATIONS: Mapping[str, Mapping[str, Any]] = {
    "lexical": {"channels": ["lexical"]},
    "semantic": {"channels": ["semantic"]},
    "graph": {"channels": ["graph"]},
    "graph, pagerank": {"channels": ["graph"], "overrides": PAGERANK},
    "lexical and semantic": {"channels": ["lexical", "semantic"]},
    "lexical and graph": {"channels": ["lexical", "graph"]},
    "semantic and graph": {"channels": ["semantic", "graph"]},
    "hybrid": {},
    "hybrid, not reranked": {"overrides": NOT_RERANKED},
    "hybrid, pagerank": {"overrides": PAGERANK},
    "rrf": {"profile": "rrf"},
    "rrf, not reranked": {"profile": "rrf", "overrides": NOT_RERANKED},
}
"""Fields of the request by name. A single channel has no word pairs, links or reranking."""
COMPARED_CONFIGURATIONS = ("lexical", "hybrid")


def read_sample(folder: Path, every: int, *, titled: bool) -> RetrievalSet:
    """Read the set with every nth of its queries."""
    test_set = read_retrieval_set(folder)
    queries = test_set.queries[::every]
    ids = {query.id for query in queries}
    documents = test_set.documents
    return replace(
        test_set,
        documents=documents
        if titled
        else tuple(replace(document, title=None) for document in documents),
        queries=queries,
        relevant={query: found for query, found in test_set.relevant.items() if query in ids},
    )


async def measure(
    test_set: RetrievalSet,
    configurations: Sequence[str],
    chunkings: Sequence[str],
    processes: int,
) -> dict[str, Any]:
    load_before = os.getloadavg()
    ingests: dict[str, Any] = {}
    costs: dict[str, Any] = {}
    runs: dict[str, Run] = {}
    for chunking in ("default", *chunkings):
        async with start_ephemeral_stack(Settings(chunk=ChunkSettings(profile=chunking))) as stack:
            ingests[chunking] = await ingest_set(stack, test_set)
            names = configurations if chunking == "default" else ("hybrid",)
            if processes > 1:
                measured = await asyncio.to_thread(
                    run_in_processes, stack, test_set.queries, names, processes
                )
            else:
                measured = await run_configurations(
                    stack.retriever,
                    await fetch_postmaster(stack.storage.pool),
                    test_set.queries,
                    names,
                )
            for name, result in measured.items():
                key = name if chunking == "default" else f"{name}, {chunking} chunks"
                costs[key], runs[key] = result
    differences = compare_with_hybrid(runs, test_set)
    return {
        "set": test_set.name,
        "documents": len(test_set.documents),
        "queries": len(test_set.queries),
        "load": {"before": load_before, "after": os.getloadavg()},
        "ingest": ingests,
        "configurations": {
            key: {
                "metrics": measure_run(run, test_set.relevant),
                "difference_from_hybrid": differences[key],
                **costs[key],
            }
            for key, run in runs.items()
        },
    }


async def ingest_set(stack: EphemeralStack, test_set: RetrievalSet) -> dict[str, Any]:
    with Timer() as timer:
        failed = await ingest_documents(stack, test_set.documents)
    # Stopped, so that what it does while idle is not counted as CPU of the questions.
    stack.worker_task.cancel()
    await asyncio.gather(stack.worker_task, return_exceptions=True)
    # As autovacuum does a minute later: until then Postgres plans as if the tables were empty,
    # which costs half a second of CPU for each question.
    await stack.storage.pool.execute("analyze")
    return {
        "seconds": round(timer.seconds, 1),
        "child_chunks": await stack.storage.pool.fetchval("select count(*) from child_chunks"),
        "failed": failed,
    }


Measured = dict[str, tuple[dict[str, Any], Run]]
"""Cost per question and rankings, by configuration."""


def run_in_processes(
    stack: EphemeralStack, queries: Sequence[TestQuery], names: Sequence[str], processes: int
) -> Measured:
    """Divide the configurations among processes that read the same index."""
    # Spawned, since a fork would share the event loop's sockets.
    context = multiprocessing.get_context("spawn")
    shares = [share for n in range(processes) if (share := names[n::processes])]
    with ProcessPoolExecutor(len(shares), mp_context=context) as pool:
        parts = [
            pool.submit(
                run_in_process,
                stack.settings,
                stack.storage.dsn,
                stack.worker.generation,
                queries,
                share,
            )
            for share in shares
        ]
        return {name: result for part in parts for name, result in part.result().items()}


def run_in_process(
    settings: Settings,
    dsn: str,
    generation: Generation,
    queries: Sequence[TestQuery],
    names: Sequence[str],
) -> Measured:
    async def run() -> Measured:
        async with AsyncExitStack() as exits:
            pool = await open_pool(dsn, size=4, name="benchmark")
            exits.push_async_callback(pool.close)
            retriever = await exits.enter_async_context(
                prepare_retriever(
                    settings,
                    open_unprepared_storage(settings, dsn, pool),
                    PgSearch(pool),
                    generation,
                    load_all_profiles(settings),
                )
            )
            return await run_configurations(retriever, None, queries, names)

    silence_logs()
    return asyncio.run(run())


async def run_configurations(
    retriever: Retriever,
    postmaster: int | None,
    queries: Sequence[TestQuery],
    names: Sequence[str],
) -> Measured:
    # Models are loaded by the first question, which would count for its configuration.
    await rank_documents(retriever, SearchRequest(query=queries[0].text))
    return {
        name: await run_queries(retriever, postmaster, queries, CONFIGURATIONS[name])
        for name in names
    }


async def run_queries(
    retriever: Retriever,
    postmaster: int | None,
    queries: Sequence[TestQuery],
    fields: Mapping[str, Any],
) -> tuple[dict[str, Any], Run]:
    """Ask one question after the other; return what they cost, and the rankings.

    The CPU of Postgres is counted if its `postmaster` is given.
    """
    process_cpu_s = time.process_time()
    postgres_cpu_s = measure_tree_cpu(postmaster) if postmaster else 0.0
    run: dict[str, Sequence[tuple[str, float]]] = {}
    latencies_ms = []
    for query in queries:
        with Timer() as timer:
            request = SearchRequest(query=query.text, **fields)
            run[query.id] = await rank_documents(retriever, request)
        latencies_ms.append(timer.seconds * 1000)
    process_cpu_s = time.process_time() - process_cpu_s
    cpu_ms = {"process": round(1000 * process_cpu_s / len(queries), 1)}
    if postmaster:
        postgres_cpu_s = measure_tree_cpu(postmaster) - postgres_cpu_s
        cpu_ms["postgres"] = round(1000 * postgres_cpu_s / len(queries), 1)
    return {"latency_ms": compute_percentiles(latencies_ms), "cpu_ms_per_query": cpu_ms}, run


def compare_with_hybrid(
    runs: Mapping[str, Run], test_set: RetrievalSet
) -> dict[str, dict[str, dict[str, float]]]:
    """Return the mean difference of each measure from the hybrid's, with its 95 % interval."""
    differences: dict[str, dict[str, dict[str, float]]] = {key: {} for key in runs}
    for measure_name, measure_query in MEASURES.items():
        hybrid = measure_queries(runs["hybrid"], test_set.relevant, measure_query)
        for key, run in runs.items():
            interval = paired_interval(
                hybrid, measure_queries(run, test_set.relevant, measure_query)
            )
            differences[key][measure_name] = {
                "difference": round(interval.difference, 4),
                "low": round(interval.low, 4),
                "high": round(interval.high, 4),
            }
    return differences


def read_results(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.retrieval_sets",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folders", type=Path, nargs="*", metavar="PATH")
    parser.add_argument(
        "--also",
        choices=[name for name in CONFIGURATIONS if name not in COMPARED_CONFIGURATIONS],
        action="append",
        default=[],
        help="Also measure this configuration.",
    )
    parser.add_argument("--ablations", action="store_true", help="Measure every configuration.")
    parser.add_argument(
        "--chunking",
        metavar="NAME",
        action="append",
        default=[],
        help="Also measure the hybrid with this chunking profile.",
    )
    parser.add_argument(
        "--every", type=int, default=1, metavar="N", help="Ask every Nth question only."
    )
    parser.add_argument(
        "--processes", type=int, default=1, metavar="N", help="Ask N configurations at a time."
    )
    parser.add_argument(
        "--untitled", action="store_true", help="Ingest the documents without their titles."
    )
    parser.add_argument("--results", type=Path, metavar="FILE", help="Store the reports by set.")
    parser.add_argument("--table", action="store_true", help="Print the stored reports as tables.")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="Draw the stored reports as SVG.")
    arguments = parser.parse_args()
    if arguments.every < 1:
        parser.error(f"--every is {arguments.every}; it must be at least 1")
    if (arguments.table or arguments.plot) and not arguments.results:
        parser.error("--table and --plot need --results FILE")
    if not arguments.folders and not (arguments.table or arguments.plot):
        parser.error("name the folder of a test set, or stored --results with --table or --plot")
    if not arguments.folders and not arguments.results.is_file():
        parser.error(f"{arguments.results} does not exist. Measure a test set with --results first")
    return arguments


def main() -> None:
    arguments = parse_arguments()
    silence_logs()
    configurations = [
        name
        for name in CONFIGURATIONS
        if arguments.ablations or name in COMPARED_CONFIGURATIONS or name in arguments.also
    ]
    for folder in arguments.folders:
        test_set = read_sample(folder, arguments.every, titled=not arguments.untitled)
        report = {
            "benchmark": "retrieval_sets",
            "titled": not arguments.untitled,
            "every": arguments.every,
            **asyncio.run(
                measure(test_set, configurations, arguments.chunking, arguments.processes)
            ),
        }
        print_report(report)
        if arguments.results:
            stored = {**read_results(arguments.results), test_set.name: report}
            arguments.results.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
    if arguments.table:
        print(format_tables(read_results(arguments.results)))
    if arguments.plot:
        arguments.plot.write_text(draw_plot(read_results(arguments.results)), encoding="utf-8")


if __name__ == "__main__":
    main()
