"""A worker as a process of its own that is made to be killed: its embedder notes what it answers, refuses a word, and after so many texts answers never again. A deadly word kills it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace

from anabranch.composition.overrides import Overrides
from anabranch.composition.worker import prepare_worker
from anabranch.process.stopping import until_stopped
from anabranch.settings_loading import load_settings
from engines.embed.null import NullEmbedder
from schemas.errors import PermanentError
from schemas.generations import IndexConfig
from schemas.ports.engines import Embedded
from tests.integration.null_worker import READY, note
from tests.integration.test_reindex import engines_of

SILENT = "silent"
"""What it notes when it stops answering."""


@dataclass
class Frailty:
    """`texts` are how many of dimension `of` it has still to answer; None: any number."""

    notes: int
    refuse: str | None = None
    texts: int | None = None
    of: int = 0
    deadly: str | None = None


class FrailEmbedder(NullEmbedder):
    """Notes dimension and last word of each text that it has answered. Once it has fallen silent it is so for all."""

    def __init__(self, dimension: int, frailty: Frailty) -> None:
        super().__init__(dimension)
        self._frailty = frailty

    async def embed(self, texts: Sequence[str]) -> list[Embedded]:
        if self._frailty.refuse and any(self._frailty.refuse in text for text in texts):
            raise PermanentError("not this one", code="REFUSED")
        if self._frailty.deadly and any(self._frailty.deadly in text for text in texts):
            os.kill(os.getpid(), signal.SIGKILL)
        await self._tire(len(texts))
        note(self._frailty.notes, *(f"{self.dimension} {text.split()[-1]}" for text in texts))
        return await super().embed(texts)

    async def _tire(self, texts: int) -> None:
        frailty = self._frailty
        if frailty.texts is None or frailty.of != self.dimension:
            return
        if texts > frailty.texts:
            frailty.texts = 0
            note(frailty.notes, SILENT)
            await asyncio.Event().wait()
        frailty.texts -= texts


@dataclass(frozen=True)
class Orders:
    """`texts` and `of` as in `Frailty`."""

    dsn: str
    notes: str
    refuse: str | None = None
    texts: int | None = None
    of: int = 0
    deadly: str | None = None


def run(orders: Orders) -> None:
    """In a process of its own, until told to stop."""
    asyncio.run(until_stopped(_work(orders)))


async def _work(orders: Orders) -> None:
    notes = os.open(orders.notes, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    frailty = Frailty(notes, orders.refuse, orders.texts, orders.of, orders.deadly)

    def engines(config: IndexConfig) -> Overrides:
        usual = engines_of(config)
        return replace(usual, embedder=FrailEmbedder(usual.embedder.dimension if usual.embedder else 0, frailty))

    async with prepare_worker(load_settings(), orders.dsn, overrides=Overrides(for_config=engines)) as worker:
        note(notes, READY)
        await worker.run()
