"""A worker as a process of its own: the real one by its settings from the environment, with engines that cost next to nothing. It notes what it embeds."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Sequence

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


async def work(notes_file: str, stages: Sequence[str], pause_s: float, real_parser: bool) -> None:
    notes = os.open(notes_file, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    settings, parser = load_settings(), None if real_parser else LineParser()
    overrides = Overrides(parser=parser, embedder=NotingEmbedder(notes, pause_s))
    async with database(settings, shared=True) as dsn, prepare_worker(settings, dsn, stages=stages_named(stages), overrides=overrides) as worker:
        note(notes, READY)
        await worker.run()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("notes")
    parser.add_argument("stages", nargs="+")
    parser.add_argument("--pause", type=float, default=0.0)
    parser.add_argument("--real-parser", action="store_true")
    given = parser.parse_args()
    asyncio.run(until_stopped(work(given.notes, given.stages, given.pause, given.real_parser)))


if __name__ == "__main__":
    main()
