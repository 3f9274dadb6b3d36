"""A worker process with the real settings and engines that cost almost nothing."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass

from anabranch.composition.worker import prepare_worker
from anabranch.config.loader import load_settings
from anabranch.config.overrides import Overrides
from anabranch.process.database import open_database
from anabranch.process.ingress_settings import select_stages
from anabranch.process.shutdown import run_until_stopped
from schemas.ports.engines import TextEmbedding
from tests.fakes.null_embedder import NullEmbedder
from tests.support.simulated_pipeline import LineParser

READY = "ready"


class RecordingEmbedder(NullEmbedder):
    """Take `pause_s` per call and record the last word of each text."""

    def __init__(self, notes: int, pause_s: float = 0.0) -> None:
        super().__init__(dimension=32, state_dimension=8)
        self._notes, self._pause_s = notes, pause_s

    async def embed(self, texts: Sequence[str]) -> list[TextEmbedding]:
        await asyncio.sleep(self._pause_s)
        write_notes(self._notes, *(text.split()[-1] for text in texts))
        return await super().embed(texts)


def write_notes(notes: int, *lines: str) -> None:
    os.write(notes, "".join(f"{line}\n" for line in lines).encode())


@dataclass(frozen=True)
class NullWorkerOrders:
    notes: str
    stages: Sequence[str]
    real_parser: bool = False


def run_null_worker(orders: NullWorkerOrders) -> None:
    """Run in a separate process until stopped."""
    asyncio.run(run_until_stopped(_run_until_stopped(orders)))


async def _run_until_stopped(orders: NullWorkerOrders) -> None:
    notes = os.open(orders.notes, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    settings, parser = load_settings(), None if orders.real_parser else LineParser()
    overrides = Overrides(parser=parser, embedder=RecordingEmbedder(notes))
    async with (
        open_database(settings, is_shared=True) as dsn,
        prepare_worker(
            settings, dsn, stages=select_stages(orders.stages), overrides=overrides
        ) as worker,
    ):
        write_notes(notes, READY)
        await worker.run()
