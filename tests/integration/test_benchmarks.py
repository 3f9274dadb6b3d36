"""Run each benchmark with minimal input: it reports its figures, and nothing became dearer."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import harness
from benchmarks.harness import make_text_records, run_pipeline
from benchmarks.null_engines import make_null_overrides
from benchmarks.peers.report import format_tables
from benchmarks.ratios import (
    SHORT_RUNS,
    CommitBeforeFails,
    CostComparison,
    compare_cost,
    extract_commit_before,
    run_program,
)
from benchmarks.retrieval_sets import CONFIGURATIONS
from benchmarks.synthetic_tables import add_copies, store_templates
from sql.operations.integrity import check_integrity
from tests.support.eventually import eventually
from tests.support.forked_process import fork_process

DIFFERENCES = ("missing", "duplicates", "extra", "wrong")


@dataclass(frozen=True)
class BenchmarkOrders:
    name: str
    options: dict[str, Any]
    dsn: str
    folder: Path


def run_measurement(orders: BenchmarkOrders) -> None:
    """Run in a forked process, on a database that exists, and write the figures."""

    @asynccontextmanager
    async def use_database(*_: object) -> AsyncIterator[tuple[Path, SimpleNamespace]]:
        yield orders.folder, SimpleNamespace(dsn=orders.dsn)

    harness.__dict__["start_postgres"] = use_database
    figures = asyncio.run(import_module(f"benchmarks.{orders.name}").measure(**orders.options))
    (orders.folder / "figures.json").write_text(json.dumps(figures))


@pytest.mark.parametrize(
    ("name", "options", "figures"),
    [
        ("search_latency", {"documents": 10, "questions": 2}, {"ratio_p95", "reranked_ms"}),
        ("upload_latency", {"null": True, "repeats": 2}, {"ms"}),
        ("request_trace", {"overrides": make_null_overrides()}, {"upload", "query"}),
    ],
    ids=["search", "upload", "trace"],
)
def test_benchmark_returns_its_figures(
    name: str, options: dict[str, Any], figures: set[str], database: str, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    orders = BenchmarkOrders(name, options, database, tmp_path)
    assert fork_process(run_measurement, orders, log=log, environment={}).wait() == 0, (
        log.read_text()
    )
    assert figures <= json.loads((tmp_path / "figures.json").read_text()).keys()


def write_small_set(folder: Path) -> None:
    texts = ["Pumps raise water.", "Valves stop the flow.", "Pipes carry oil."]
    for name, lines in {
        "corpus.jsonl": [json.dumps({"id": str(n), "text": text}) for n, text in enumerate(texts)],
        "queries.jsonl": [json.dumps({"id": "q", "text": "What raises water?"})],
        "qrels.tsv": ["query-id\tcorpus-id\tscore", "q\t0\t1"],
    }.items():
        (folder / name).write_text("\n".join(lines))


@pytest.mark.long
def test_ablations_measure_every_configuration(tmp_path: Path) -> None:
    write_small_set(tmp_path)
    report = run_program("retrieval_sets", "--ablations", "--chunking=small", str(tmp_path))
    assert report["configurations"].keys() == {*CONFIGURATIONS, "hybrid, small chunks"}
    for name, figures in report["configurations"].items():
        # The question names no entity, so that the graph alone finds nothing.
        assert figures["metrics"]["ndcg@10"] == (0 if name.startswith("graph") else 1), name


@pytest.mark.long
def test_vector_indexes_are_compared_with_an_exact_scan(tmp_path: Path) -> None:
    write_small_set(tmp_path)
    report = run_program("vector_indexes", str(tmp_path))
    searches = {**report["hnsw"]["searches"], **report["ivfflat"]["searches"]}
    assert searches["hnsw.ef_search 100"]["recall@10"] == 1
    # Of as many lists as there are vectors, one is not enough.
    assert searches["ivfflat.probes 1"]["recall@10"] < 1


@pytest.fixture(scope="module")
def tree_before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("before")
    try:
        extract_commit_before(folder)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no commit to compare with: {error.stderr.decode().strip()}")
    return folder


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", SHORT_RUNS)
def test_cost_is_that_of_the_commit_before(
    name: str, tree_before: Path, record_property: Callable[[str, object], None]
) -> None:
    try:
        comparison = compare_cost(name, tree_before)
    except CommitBeforeFails as error:
        pytest.skip(f"the commit before does not run here: {error}")
    record_property("cost", str(comparison))
    assert not comparison.is_regression, comparison


@pytest.mark.parametrize(("cpu_ms", "is_regression"), [(4.7, True), (4.5, False)])
def test_cost_above_a_hundred_and_fifteen_percent_is_a_regression(
    cpu_ms: float, is_regression: bool
) -> None:
    assert CostComparison("document_cost", cpu_ms, 4.0).is_regression is is_regression


@pytest.mark.long
def test_comparison_with_peers_checks_every_row(tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    choices = ["--systems=floor,anabranch", "--measure=ingest,live"]
    sizes = ["--documents=6", "--changes=2", "--new-files=1", "--settle-s=0.2", "--idle-s=0.2"]
    subprocess.run(
        [sys.executable, "-m", "benchmarks.peers", "run", *choices, *sizes, "--out", results],
        check=True,
        timeout=280,
    )
    report = json.loads(results.read_text())
    floor, anabranch = report["systems"]["floor"], report["systems"]["anabranch"]
    live = anabranch.pop("live")
    checked = [floor["ingest"], *anabranch.values()]
    checked += [live[name] for name in ("edit", "delete", "fresh", "restart")]
    assert len(checked) == 9
    assert [differences for run in checked if (differences := find_differences(run))] == []
    assert anabranch["edit"]["embedded"] == anabranch["edit"]["needed"] > 0
    assert anabranch["unchanged"]["embedded"] == 0
    assert "exact" in format_tables(report)


def find_differences(run: dict[str, Any]) -> dict[str, int]:
    assert run["expected"] > 0
    return {name: run[name] for name in DIFFERENCES if run[name]}


async def test_synthetic_tables_pass_integrity_check() -> None:
    async with run_pipeline(make_null_overrides()) as bench:
        pool = bench.worker.storage.pool
        await bench.push(await make_text_records(["one two three"]))

        async def is_complete() -> bool:
            return await pool.fetchval("select count(*) = 3 from revision_parts") is True

        await eventually(is_complete)
        await store_templates(pool)
        await add_copies(pool, start=1, stop=31, words=20)
        counts = await check_integrity(pool)
        assert not any(counts.values()), counts
        assert await pool.fetchval("select sum(chunks) from corpus_deltas") == 31
