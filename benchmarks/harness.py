"""Run the real pipeline in this process, over a temporary embedded Postgres."""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import logging
import secrets
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import structlog
import uvicorn

from anabranch.__main__ import GC_THRESHOLDS
from anabranch.composition.api import prepare_api
from anabranch.composition.worker import Worker, prepare_worker
from anabranch.config.loader import override_settings
from anabranch.config.overrides import Overrides
from anabranch.config.settings import Settings
from anabranch.process.api_process import freeze_heap
from api.app import create_app
from retrieval.question.words import FUNCTION_WORDS
from schemas.events import Content, DocumentReceived
from schemas.topics import Record
from sql.database import Pool
from sql.embedded.server import EmbeddedPostgres
from streams.codec import Codec
from streams.publisher import build_raw_record

VOCABULARY = 20_000
NATURAL_VOCABULARY = 200_000


@dataclass
class BenchmarkPipeline:
    settings: Settings
    dsn: str
    worker: Worker
    failures: list[BaseException] = field(default_factory=list)

    async def push(self, documents: Sequence[Record]) -> None:
        for start in range(0, len(documents), 200):
            await self.worker.storage.log.append(documents[start : start + 200])

    async def load(self, documents: Sequence[Record]) -> None:
        """Append documents no faster than they become searchable."""
        for start in range(0, len(documents), 500):
            await self.push(documents[start : start + 500])
            await self.wait_until_searchable(min(len(documents), start + 500))

    async def wait_until_searchable(self, count: int, *, poll_s: float = 0.02) -> None:
        """Wait until `count` documents are visible or dead letters."""
        query = (
            "select (select count(*) from visible) "
            "+ (select count(distinct log_offset) from dead_letters)"
        )
        while await self.worker.storage.pool.fetchval(query) < count:
            if self.failures:
                raise self.failures[0]
            await asyncio.sleep(poll_s)


async def fetch_postmaster(pool: Pool) -> int:
    """Return the process id of the Postgres server."""
    folder = Path(await pool.fetchval("show data_directory"))
    return int((folder / "postmaster.pid").read_text().splitlines()[0])


@asynccontextmanager
async def start_postgres(
    folder: Path | None = None, settings: Mapping[str, str] | None = None
) -> AsyncIterator[tuple[Path, EmbeddedPostgres]]:
    """Start an embedded Postgres in this data folder, or in a temporary one.

    `settings` are the server's.
    """
    with tempfile.TemporaryDirectory(prefix="anabranch-bench-") as name:
        folder = folder or Path(name)
        folder.chmod(0o755)
        server = EmbeddedPostgres(folder / "postgres", settings=settings)
        await asyncio.to_thread(server.start)
        try:
            yield folder, server
        finally:
            await asyncio.to_thread(server.stop)


@asynccontextmanager
async def run_pipeline(
    overrides: Overrides,
    *,
    maintenance_s: float = 20.0,
    folder: Path | None = None,
    **settings: Any,
) -> AsyncIterator[BenchmarkPipeline]:
    """Start the pipeline, over the database in `folder` or over a temporary one.

    `maintenance_s` is the interval of maintenance; a bulk load builds its vector index afterwards.
    """
    silence_logs()
    # As the program does.
    gc.set_threshold(*GC_THRESHOLDS)
    async with start_postgres(folder) as (data_dir, server):
        pipeline_settings = Settings(data_dir=data_dir, **settings)
        async with prepare_worker(
            pipeline_settings, server.dsn, overrides=overrides
        ) as prepared_worker:
            worker = replace(
                prepared_worker,
                maintenance=replace(prepared_worker.maintenance, interval_s=maintenance_s),
            )
            bench = BenchmarkPipeline(pipeline_settings, server.dsn, worker)
            worker_task = asyncio.create_task(worker.run())
            worker_task.add_done_callback(
                lambda task: (
                    bench.failures.append(task.exception() or RuntimeError("the worker stopped"))
                    if not task.cancelled()
                    else None
                )
            )
            yield bench
            worker_task.cancel()
            await asyncio.gather(worker_task, return_exceptions=True)


@asynccontextmanager
async def serve_api(
    settings: Settings, dsn: str, overrides: Overrides
) -> AsyncIterator[httpx2.AsyncClient]:
    """Serve the API over HTTP from this process."""
    token = secrets.token_urlsafe(32)
    settings = override_settings(settings, [f"api.token={token}"])
    async with prepare_api(settings, dsn, overrides=overrides) as services:
        server = uvicorn.Server(
            uvicorn.Config(
                create_app(services),
                host="127.0.0.1",
                port=0,
                log_config=None,
                access_log=False,
                lifespan="off",
                timeout_keep_alive=60,
            )
        )
        server_task = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        freeze_heap()
        async with httpx2.AsyncClient(
            base_url=f"http://127.0.0.1:{port}",
            headers={"Authorization": f"Bearer {token}"},
            timeout=60,
        ) as client:
            yield client
        server.should_exit = True
        await server_task


def silence_logs() -> None:
    """Log only warnings, to stderr, since logging is not part of the measurement."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


async def make_text_records(texts: Iterable[str], prefix: str = "doc") -> list[Record]:
    codec, now = Codec(), datetime.now(UTC)
    return [
        await build_raw_record(
            DocumentReceived(external_id=f"{prefix}-{number}", content=Content(text=text)),
            f"{prefix}-{number}",
            source="benchmark",
            time=now,
            codec=codec,
        )
        for number, text in enumerate(texts)
    ]


def make_synthetic_texts(documents: int, words: int, seed: int = 7) -> list[str]:
    """Make texts of words drawn from a Zipf distribution."""
    import numpy as np

    ranks = np.random.default_rng(seed).zipf(1.3, size=(documents, words)) % VOCABULARY
    return [" ".join(f"w{rank:x}" for rank in row) for row in ranks]


def make_natural_texts(documents: int, words: int, seed: int = 7) -> list[str]:
    """Make texts with the word frequencies of English: Zipf's law as Mandelbrot corrected it.

    The most frequent words are function words, a third of the text.
    """
    import numpy as np

    weights = 1 / (np.arange(NATURAL_VOCABULARY) + 2.7)
    function_words = sorted(FUNCTION_WORDS["en"])
    vocabulary = np.array(
        [*function_words, *(f"w{rank:x}" for rank in range(len(function_words), len(weights)))]
    )
    drawn = np.random.default_rng(seed).choice(
        vocabulary, size=(documents, words), p=weights / weights.sum()
    )
    return [" ".join(row) for row in drawn]


class Timer:
    def __enter__(self) -> Timer:
        self.started_at = time.perf_counter()
        return self

    def __exit__(self, *error: object) -> None:
        self.seconds = time.perf_counter() - self.started_at


def print_report(figures: dict[str, Any]) -> None:
    json.dump(
        {
            "schema_version": 1,
            "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
            **figures,
        },
        sys.stdout,
        indent=1,
    )
    print()


def run_benchmark(
    measure: Callable[..., Awaitable[dict[str, Any]]], description: str | None, **numbers: int
) -> None:
    """Run a measurement as a program. `numbers` are its integer options with their defaults."""
    parser = argparse.ArgumentParser(description=description)
    for name, default in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=default)

    async def measured() -> None:
        print_report(await measure(**vars(parser.parse_args())))

    asyncio.run(measured())
