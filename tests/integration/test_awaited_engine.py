"""A stage that waits for an engine says for which, and ceases to when it is back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from anabranch.doctor import waiting
from anabranch.settings_loading import load_settings
from engines.embed.null import NullEmbedder
from schemas.errors import EngineUnavailable
from schemas.ports.engines import Embedded
from streams import hosting
from tests.pipeline import Pipeline, null_overrides, pipeline


class Away(NullEmbedder):
    is_away = True

    async def embed(self, texts: Sequence[str]) -> list[Embedded]:
        if self.is_away:
            raise EngineUnavailable("http://embedder.test does not answer")
        return await super().embed(texts)


async def test_topics_lag_and_doctor_name_the_engine_that_a_stage_waits_for(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosting, "RENEWED_S", 0.2)
    embedder = Away(dimension=8)
    settings = load_settings(data_dir=tmp_path, sets=[f"database.url={database}"])
    async with pipeline(tmp_path, database, replace(null_overrides(), embedder=embedder), settings=settings) as at_work:
        await at_work.push({"heron": "Herons nest."})

        async def told() -> bool:
            return bool((await at_work.line("embed"))["paused"])

        await at_work.until(told)
        found = await at_work.line("embed")
        assert found["why"] == "stands still: http://embedder.test does not answer" and "model server" in found["remedy"]
        assert not (await at_work.line("chunk"))["paused"]
        [finding] = [one for one in await waiting.stages(settings) if one.name == "stage: embed"]
        assert finding.status == "warn" and "http://embedder.test" in finding.detail
        embedder.is_away = False
        await at_work.fill({})
        await at_work.until(lambda: forgotten(at_work))


async def forgotten(at_work: Pipeline) -> bool:
    return not await at_work.pool.fetch("select from reader_pauses")
