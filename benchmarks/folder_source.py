"""Folder source: documents a second of a first ingest, and the delay of a file that changes.

Null parser, embedder and extractor, so that the figures show what reading, the chunker, the log,
the stages and the tables cost. CPU is that of this process and of all Postgres processes. Where
the file system of the temporary folder creates files slowly, that shows too: set TMPDIR.

python -m benchmarks.folder_source --files 2000 --changes 40
"""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from anabranch.config.overrides import Overrides
from benchmarks.harness import (
    BenchmarkPipeline,
    fetch_postmaster,
    make_synthetic_texts,
    run_benchmark,
    run_pipeline,
)
from benchmarks.null_engines import FlatEmbedder, NullExtractor, NullParser
from benchmarks.processes import measure_tree_cpu
from schemas.events import SourceAdded, build_root_event
from schemas.sources import FolderSource, SourceSpec
from schemas.topics import CONTROL

NAME = "library"
COUNT_RAW = "select count(*) from events where topic = 'raw'"


async def add_folder(bench: BenchmarkPipeline, folder: Path) -> None:
    spec = SourceSpec(
        name=NAME, connector=FolderSource(path=str(folder), every_s=2.0), tenant="default"
    )
    storage = bench.worker.storage
    event = build_root_event(
        SourceAdded(source=spec, epoch=1),
        uuid4(),
        "anabranch/sources",
        lambda: datetime.now(UTC),
    )
    await storage.log.append([await storage.codec.encode(event, CONTROL, NAME)])


async def wait_for(
    bench: BenchmarkPipeline, query: str, expected: int, poll_s: float = 0.002
) -> float:
    while await bench.worker.storage.pool.fetchval(query) < expected:
        await asyncio.sleep(poll_s)
    return time.perf_counter()


async def measure(files: int, changes: int, words: int) -> dict[str, Any]:
    texts = make_synthetic_texts(files + changes, words)
    overrides = Overrides(parser=NullParser(), embedder=FlatEmbedder(), extractor=NullExtractor())
    with tempfile.TemporaryDirectory(prefix="anabranch-folder-") as name:
        folder = Path(name)
        for number, text in enumerate(texts[:files]):
            path = folder / f"doc-{number}.md"
            path.write_text(text)
            os.utime(path, (1_760_000_000, 1_760_000_000))
        async with run_pipeline(overrides, ingest={"folders": [str(folder)]}) as bench:
            pool = bench.worker.storage.pool
            postmaster = await fetch_postmaster(pool)
            cpu = time.process_time(), measure_tree_cpu(postmaster)
            await add_folder(bench, folder)
            first = await wait_for(bench, COUNT_RAW, 1)
            # Seldom enough to cost little beside the load.
            in_raw = await wait_for(bench, COUNT_RAW, files, poll_s=0.02)
            await bench.wait_until_searchable(files)
            searchable = time.perf_counter()
            cpu_ms = [
                (after - before) * 1000 / files
                for before, after in zip(
                    cpu, (time.process_time(), measure_tree_cpu(postmaster)), strict=True
                )
            ]
            await asyncio.sleep(5)  # the reader has stored its state
            idle = time.process_time()
            await asyncio.sleep(10)
            idle_cpu = (time.process_time() - idle) / 10
            to_raw, to_searchable = [], []
            for number, text in enumerate(texts[files:]):
                await asyncio.sleep(0.37)
                started = time.perf_counter()
                (folder / f"new-{number}.md").write_text(text)
                to_raw.append(await wait_for(bench, COUNT_RAW, files + number + 1) - started)
                await bench.wait_until_searchable(files + number + 1, poll_s=0.002)
                to_searchable.append(time.perf_counter() - started)
            await asyncio.sleep(3)
            before = await pool.fetchval(COUNT_RAW)
            started = time.perf_counter()
            for number in range(20):
                (folder / f"doc-{number}.md").write_text(texts[number] + " edited")
            edited_in_raw = await wait_for(bench, COUNT_RAW, before + 20) - started
            await wait_for(
                bench,
                "select count(*) from visible v join document_revisions r "
                "on r.document_id = v.document_id and r.ord = v.ord where r.revision = 2",
                20,
            )
            edited_searchable = time.perf_counter() - started
    return {
        "benchmark": "folder_source",
        "files": files,
        "source_documents_per_second": (files - 1) / (in_raw - first),
        "searchable_documents_per_second": files / (searchable - first),
        "process_cpu_ms_per_document": cpu_ms[0],
        "postgres_cpu_ms_per_document": cpu_ms[1],
        "idle_process_cpu_share": idle_cpu,
        "new_file_to_raw_ms": describe_ms(to_raw),
        "new_file_to_searchable_ms": describe_ms(to_searchable),
        "20_edits_to_raw_s": edited_in_raw,
        "20_edits_to_searchable_s": edited_searchable,
    }


def describe_ms(seconds: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(seconds, n=20)
    return {"p50": statistics.median(seconds) * 1000, "p95": cuts[-1] * 1000}


if __name__ == "__main__":
    run_benchmark(measure, __doc__, files=2000, changes=40, words=150)
