"""A worker as a process of its own: the real one by its settings from the environment, with engines that cost next to nothing. It notes what it embeds."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass

from anabranch.composition.overrides import Overrides
from anabranch.composition.worker import prepare_worker
from anabranch.process.database import database
from anabranch.process.stopping import until_stopped
from anabranch.settings_loading import load_settings
from anabranch.stages import stages_named
from engines.embed.null import NullEmbedder
from schemas.ports.engines import Embedded
from tests.property.world import LineParser

READY = "ready"


class NotingEmbedder(NullEmbedder):
    """Takes `pause_s` for each call, and writes down the last word of each text."""

    def __init__(self, notes: int, pause_s: float) -> None:
        super().__init__(dimension=32, state_dimension=8)
        self._notes, self._pause_s = notes, pause_s

    async def embed(self, texts: Sequence[str]) -> list[Embedded]:
        await asyncio.sleep(self._pause_s)
        note(self._notes, *(text.split()[-1] for text in texts))
        return await super().embed(texts)


def note(notes: int, *lines: str) -> None:
    os.write(notes, "".join(f"{line}\n" for line in lines).encode())


@dataclass(frozen=True)
class Orders:
    notes: str
    stages: Sequence[str]
    pause_s: float = 0.0
    real_parser: bool = False


def run(orders: Orders) -> None:
    """In a process of its own, until told to stop."""
    asyncio.run(until_stopped(_work(orders)))


async def _work(orders: Orders) -> None:
    notes = os.open(orders.notes, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    settings, parser = load_settings(), None if orders.real_parser else LineParser()
    overrides = Overrides(parser=parser, embedder=NotingEmbedder(notes, orders.pause_s))
    async with database(settings, shared=True) as dsn, prepare_worker(settings, dsn, stages=stages_named(orders.stages), overrides=overrides) as worker:
        note(notes, READY)
        await worker.run()
