"""A stage reports the engine that it waits for, until the engine is back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from anabranch.config.loader import load_settings
from anabranch.doctor import stalls
from schemas.errors import EngineUnavailable
from schemas.ports.engines import TextEmbedding
from streams import stage_consumer
from tests.fakes.null_embedder import NullEmbedder
from tests.support.pipeline import Pipeline, null_overrides, run_pipeline


class UnavailableEmbedder(NullEmbedder):
    is_unavailable = True

    async def embed(self, texts: Sequence[str]) -> list[TextEmbedding]:
        if self.is_unavailable:
            raise EngineUnavailable("http://embedder.test does not answer")
        return await super().embed(texts)


async def test_lag_and_doctor_name_the_unavailable_engine(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage_consumer, "STATUS_RENEWAL_S", 0.2)
    embedder = UnavailableEmbedder(dimension=8)
    settings = load_settings(data_dir=tmp_path, sets=[f"database.url={database}"])
    async with run_pipeline(
        tmp_path, database, replace(null_overrides(), embedder=embedder), settings=settings
    ) as at_work:
        await at_work.push({"heron": "Herons nest."})

        async def told() -> bool:
            return bool((await at_work.fetch_lag("embed"))["paused"])

        await at_work.wait_for(told)
        found = await at_work.fetch_lag("embed")
        assert (
            found["reason"] == "stalled: http://embedder.test does not answer"
            and "model server" in found["remedy"]
        )
        assert not (await at_work.fetch_lag("chunk"))["paused"]
        [finding] = [
            one for one in await stalls.check_stages(settings) if one.check == "stage: embed"
        ]
        assert finding.state == "warn" and "http://embedder.test" in finding.detail
        embedder.is_unavailable = False
        await at_work.push_and_wait({})
        await at_work.wait_for(lambda: is_pause_cleared(at_work))


async def is_pause_cleared(at_work: Pipeline) -> bool:
    return not await at_work.pool.fetch("select from reader_status")
