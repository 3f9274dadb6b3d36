"""Settings of a worker limit how often an event is attempted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from anabranch.config.loader import load_settings
from anabranch.config.overrides import Overrides
from schemas.errors import TransientError
from schemas.ports.engines import TextEmbedding
from tests.fakes.null_embedder import NullEmbedder
from tests.support.eventually import eventually
from tests.support.pipeline import run_pipeline
from tests.support.simulated_pipeline import LineParser


class FailingEmbedder(NullEmbedder):
    async def embed(self, texts: Sequence[str]) -> list[TextEmbedding]:
        raise TransientError("not yet")


@pytest.mark.parametrize("attempts", [1, 3])
async def test_event_is_dead_lettered_after_attempts_of_the_setting(
    database: str, tmp_path: Path, attempts: int
) -> None:
    settings = load_settings(data_dir=tmp_path, sets=[f"worker.attempts={attempts}"])
    overrides = Overrides(parser=LineParser(), embedder=FailingEmbedder(dimension=8))
    async with run_pipeline(tmp_path, database, overrides, settings) as at_work:
        await at_work.push({"doc": "A heron flies."})

        async def find_attempts() -> int | None:
            query = "select attempts from dead_letters where stage = 'embed'"
            found: int | None = await at_work.pool.fetchval(query)
            return found

        assert await eventually(find_attempts) == attempts
