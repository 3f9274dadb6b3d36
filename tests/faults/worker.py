"""A worker process for trials: the real one by its settings, less patient, and made to die or to be slow."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from anabranch.composition.overrides import Overrides
from anabranch.composition.storage import kafka_of
from anabranch.composition.worker import prepare_worker
from anabranch.process.database import database
from anabranch.process.stopping import until_stopped
from anabranch.settings_loading import load_settings
from anabranch.stages import stages_named
from engines.embed.openai import OpenAIEmbedder
from engines.ocr.fake import FakeOcr
from engines.parse import LocalParser
from engines.resilience import Patience
from engines.server_settings import ServerSettings
from schemas.ports.engines import Embedder, File, ParsePlan
from schemas.values import Transcript
from streams.kafka.worker import FaustSubscriber
from streams.partition import Bounds
from tests.faults.steps import watch_steps
from tests.integration.null_worker import READY, NotingEmbedder, note
from tests.property.world import LineParser

SESSION_S = 3.0
"""After which Kafka misses a killed worker. Ours wait for 6 s and more."""
CROSSED, DIED = "crossed ", "died "


@dataclass(frozen=True)
class Orders:
    """What a worker is and does. `die_at` is a crossing; `census` notes every crossing when it is first made."""

    notes: str
    stages: Sequence[str] = ("all",)
    embed_url: str | None = None
    embed_timeout_s: float = 2.0
    pause_s: float = 0.0
    max_poll_interval_s: float = 300.0
    bounds: Bounds = field(default_factory=Bounds)
    die_at: str | None = None
    census: bool = False


def run(orders: Orders) -> None:
    """In a process of its own, until told to stop."""
    asyncio.run(until_stopped(_work(orders)))


async def _work(orders: Orders) -> None:
    notes = os.open(orders.notes, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    if orders.census or orders.die_at:
        watch_steps(asyncio.get_running_loop(), _census(notes) if orders.census else _death(notes, orders.die_at))
    # The fault strikes each event as often as there are awaits: what three kills do to an event has a test of its own.
    settings = load_settings(sets=["worker.lost_attempts=1000"])
    async with AsyncExitStack() as stack:
        pdfs = LocalParser(FakeOcr(), max_pages=10, deadline_s=60, memory_bytes=1 << 30, workers=1)
        stack.push_async_callback(pdfs.aclose)
        overrides = Overrides(parser=PdfsAndLines(pdfs), embedder=_embedder(orders, notes))
        dsn = await stack.enter_async_context(database(settings, shared=True))
        worker = await stack.enter_async_context(prepare_worker(settings, dsn, stages=stages_named(orders.stages), overrides=overrides))
        kafka = kafka_of(settings.kafka)
        worker.hosting.subscriber = FaustSubscriber(
            kafka, session_timeout_s=SESSION_S, max_poll_interval_s=orders.max_poll_interval_s, reached=worker.storage.reached
        )
        worker.hosting.bounds = orders.bounds
        note(notes, READY)
        await worker.run()


def _embedder(orders: Orders, notes: int) -> Embedder:
    if orders.embed_url is None:
        return NotingEmbedder(notes, orders.pause_s)
    server = ServerSettings(orders.embed_url, "fake", timeout_s=orders.embed_timeout_s)
    return OpenAIEmbedder(server, dimension=32, patience=Patience(attempts=2, failures=5, rest=1.0, total=10.0))


def _census(notes: int) -> Callable[[str], None]:
    seen: set[str] = set()

    def crossed(crossing: str) -> None:
        if crossing not in seen:
            seen.add(crossing)
            note(notes, CROSSED + crossing)

    return crossed


def _death(notes: int, deadly: str | None) -> Callable[[str], None]:
    def crossed(crossing: str) -> None:
        if crossing == deadly:
            note(notes, DIED + crossing)
            os.kill(os.getpid(), signal.SIGKILL)

    return crossed


class PdfsAndLines(LineParser):
    """Lines of text, and PDFs as they are really read."""

    def __init__(self, pdfs: LocalParser) -> None:
        self._pdfs = pdfs

    async def plan(self, file: File) -> ParsePlan:
        return await (self._pdfs.plan(file) if _is_pdf(file) else super().plan(file))

    async def parse(self, file: File, plan: ParsePlan, part: str) -> bytes:
        return await (self._pdfs.parse(file, plan, part) if _is_pdf(file) else super().parse(file, plan, part))

    def assemble(self, file: File, plan: ParsePlan, parts: Sequence[bytes]) -> Transcript:
        return self._pdfs.assemble(file, plan, parts) if _is_pdf(file) else super().assemble(file, plan, parts)


def _is_pdf(file: File) -> bool:
    with file.path.open("rb") as opened:
        return opened.read(5) == b"%PDF-"
