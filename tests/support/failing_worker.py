"""Run a worker process whose embedder records texts, rejects a word, stalls and crashes."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace

from anabranch.composition.worker import prepare_worker
from anabranch.config.loader import load_settings
from anabranch.config.overrides import Overrides
from anabranch.process.shutdown import run_until_stopped
from schemas.errors import PermanentError
from schemas.generations import IndexConfig
from schemas.ports.engines import TextEmbedding
from tests.fakes.null_embedder import NullEmbedder
from tests.support.null_worker import READY, write_notes
from tests.support.reindex_cases import make_overrides

STOPPED_ANSWERING = "silent"
"""Line that the worker writes when it stops answering."""


@dataclass
class FailurePlan:
    """`texts` are how many of dimension `of` it has still to answer; None: any number."""

    notes: int
    refuse: str | None = None
    texts: int | None = None
    of: int = 0
    deadly: str | None = None


class FailingEmbedder(NullEmbedder):
    """Notes dimension and last word of each text that it has answered. Once it has fallen silent it
    is so for all.
    """

    def __init__(self, dimension: int, frailty: FailurePlan) -> None:
        super().__init__(dimension)
        self._failure_plan = frailty

    async def embed(self, texts: Sequence[str]) -> list[TextEmbedding]:
        if self._failure_plan.refuse and any(self._failure_plan.refuse in text for text in texts):
            raise PermanentError("not this one", code="REFUSED")
        if self._failure_plan.deadly and any(self._failure_plan.deadly in text for text in texts):
            os.kill(os.getpid(), signal.SIGKILL)
        await self._spend_budget(len(texts))
        write_notes(
            self._failure_plan.notes, *(f"{self.dimension} {text.split()[-1]}" for text in texts)
        )
        return await super().embed(texts)

    async def _spend_budget(self, texts: int) -> None:
        frailty = self._failure_plan
        if frailty.texts is None or frailty.of != self.dimension:
            return
        if texts > frailty.texts:
            frailty.texts = 0
            write_notes(frailty.notes, STOPPED_ANSWERING)
            await asyncio.Event().wait()
        frailty.texts -= texts


@dataclass(frozen=True)
class FailingWorkerOrders:
    """`texts` and `of` as in `FailurePlan`."""

    dsn: str
    notes: str
    refuse: str | None = None
    texts: int | None = None
    of: int = 0
    deadly: str | None = None


def run_failing_worker(orders: FailingWorkerOrders) -> None:
    """Run in a separate process until stopped."""
    asyncio.run(run_until_stopped(_run_until_stopped(orders)))


async def _run_until_stopped(orders: FailingWorkerOrders) -> None:
    notes = os.open(orders.notes, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    frailty = FailurePlan(notes, orders.refuse, orders.texts, orders.of, orders.deadly)

    def engines(config: IndexConfig) -> Overrides:
        usual = make_overrides(config)
        return replace(
            usual,
            embedder=FailingEmbedder(usual.embedder.dimension if usual.embedder else 0, frailty),
        )

    async with prepare_worker(
        load_settings(), orders.dsn, overrides=Overrides(for_config=engines)
    ) as worker:
        write_notes(notes, READY)
        await worker.run()
