"""A worker process for trials: the real worker with a short session timeout, which can be slow or
die at an await.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from anabranch.composition.worker import prepare_worker
from anabranch.config.loader import load_settings
from anabranch.config.overrides import Overrides
from anabranch.kafka.settings import build_kafka_settings
from anabranch.process.database import open_database
from anabranch.process.ingress_settings import select_stages
from anabranch.process.shutdown import run_until_stopped
from engines.embed.openai import OpenAIEmbedder
from engines.parse import LocalParser
from engines.server_settings import ServerRetryPolicy, ServerSettings
from schemas.ports.engines import Embedder, LocalFile, ParsePlan
from schemas.values import Transcript
from streams.kafka.subscriber import FaustSubscriber
from streams.partition_sink import PartitionLimits
from tests.fakes.ocr import FakeOcr
from tests.faults.await_points import get_site, get_stage, trace_await_points
from tests.support.null_worker import READY, RecordingEmbedder, write_notes
from tests.support.simulated_pipeline import LineParser

SESSION_TIMEOUT_S = 3.0
"""After which Kafka removes a killed worker from its group; real workers have 6 s and more."""
REACHED, DIED = "reached ", "died "


@dataclass(frozen=True)
class WorkerOrders:
    """Configuration of a worker process.

    `notes_await_points` notes every await point when the worker first reaches it. `spared` holds
    stages, sites and await points; the worker dies at the first await point that it does not cover.
    """

    notes: str
    stages: Sequence[str] = ("all",)
    embed_url: str | None = None
    embed_timeout_s: float = 2.0
    pause_s: float = 0.0
    max_poll_interval_s: float = 300.0
    bounds: PartitionLimits = field(default_factory=PartitionLimits)
    notes_await_points: bool = False
    spared: frozenset[str] | None = None


def run_worker(orders: WorkerOrders) -> None:
    """Run until the process is stopped."""
    asyncio.run(run_until_stopped(_run_until_stopped(orders)))


async def _run_until_stopped(orders: WorkerOrders) -> None:
    notes = os.open(orders.notes, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    if orders.notes_await_points:
        trace_await_points(asyncio.get_running_loop(), _make_await_observer(notes, orders.spared))
    # An event is killed as often as it has awaits. That three kills dead-letter it is tested
    # elsewhere.
    settings = load_settings(sets=["worker.lost_attempts=1000"])
    async with AsyncExitStack() as stack:
        pdfs = LocalParser(FakeOcr(), max_pages=10, deadline_s=60, memory_bytes=1 << 30, workers=1)
        stack.push_async_callback(pdfs.aclose)
        overrides = Overrides(parser=PdfAndLineParser(pdfs), embedder=_make_embedder(orders, notes))
        dsn = await stack.enter_async_context(open_database(settings, is_shared=True))
        worker = await stack.enter_async_context(
            prepare_worker(settings, dsn, stages=select_stages(orders.stages), overrides=overrides)
        )
        kafka = build_kafka_settings(settings.kafka)
        worker.consumers.subscriber = FaustSubscriber(
            kafka,
            session_timeout_s=SESSION_TIMEOUT_S,
            max_poll_interval_s=orders.max_poll_interval_s,
            offset_store=worker.storage.offset_store,
        )
        worker.consumers.bounds = orders.bounds
        write_notes(notes, READY)
        await worker.run()


def _make_embedder(orders: WorkerOrders, notes: int) -> Embedder:
    if orders.embed_url is None:
        return RecordingEmbedder(notes, orders.pause_s)
    server = ServerSettings(orders.embed_url, "fake", timeout_s=orders.embed_timeout_s)
    return OpenAIEmbedder(
        server,
        dimension=32,
        retry_policy=ServerRetryPolicy(
            attempts=2, failure_threshold=5, circuit_open_s=1.0, total_timeout_s=10.0
        ),
    )


def _make_await_observer(notes: int, spared: frozenset[str] | None) -> Callable[[str], None]:
    reached: set[str] = set()

    def on_await_point(point: str) -> None:
        if point in reached:
            return
        reached.add(point)
        write_notes(notes, REACHED + point)
        if spared is not None and spared.isdisjoint((point, get_site(point), get_stage(point))):
            write_notes(notes, DIED + point)
            os.kill(os.getpid(), signal.SIGKILL)

    return on_await_point


class PdfAndLineParser(LineParser):
    """Parses PDFs with the real parser and everything else as lines of text."""

    def __init__(self, pdfs: LocalParser) -> None:
        self._pdfs = pdfs

    async def plan(self, file: LocalFile) -> ParsePlan:
        return await (self._pdfs.plan(file) if _is_pdf(file) else super().plan(file))

    async def parse(self, file: LocalFile, plan: ParsePlan, part: str) -> bytes:
        return await (
            self._pdfs.parse(file, plan, part) if _is_pdf(file) else super().parse(file, plan, part)
        )

    def assemble(self, file: LocalFile, plan: ParsePlan, parts: Sequence[bytes]) -> Transcript:
        return (
            self._pdfs.assemble(file, plan, parts)
            if _is_pdf(file)
            else super().assemble(file, plan, parts)
        )


def _is_pdf(file: LocalFile) -> bool:
    with file.path.open("rb") as opened:
        return opened.read(5) == b"%PDF-"
