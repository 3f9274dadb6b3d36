"""The example of 'Add a stage', as it stands on the page, in the whole system."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import anabranch.composition.worker as composition
from anabranch.config.overrides import Overrides
from anabranch.config.settings import Settings
from processors import STAGES
from tests.support.api_world import ApiWorld, run_system

HOWTO_PAGE = Path(__file__).parents[2] / "docs/how-to/add-a-stage.md"


@pytest.fixture
def references() -> ModuleType:
    page = HOWTO_PAGE.read_text(encoding="utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert re.findall(r"^\+(.*)$", page, re.MULTILINE) == ["    references.STAGE,"]
    module = ModuleType("processors.references")
    exec(compile(program, "references.py", "exec"), module.__dict__)
    return module


@pytest.fixture
def with_references_stage(
    references: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """The one line: the stage is among those that a worker runs."""
    original = composition.prepare_worker
    stages = (*STAGES, references.STAGE)
    monkeypatch.setattr(
        "tests.journey.conftest.prepare_worker",
        lambda *given, **named: original(*given, **{"stages": stages, **named}),
    )
    yield


async def test_stage_of_howto_runs_in_worker(
    with_references_stage: None, settings: Settings, database: str, overrides: Overrides
) -> None:
    async with run_system(settings, database, overrides) as world:
        await world.ingest_until_searchable(
            "# Insurance\n\nThe ferry is insured under policy AM-55871.", "policy.md"
        )
        found = await wait_for_entities(world, "AM-55871")
    assert [entity["type"] for entity in found] == ["REFERENCE"]


async def wait_for_entities(world: ApiWorld, text: str) -> list[dict[str, Any]]:
    """Those of that name, once there are any: the graph may follow the words."""
    async with asyncio.timeout(60):
        while not (
            items := [
                item
                for item in (await world.http.get("/v1/entities", params={"text": text})).json()[
                    "items"
                ]
                if item["type"] == "REFERENCE"
            ]
        ):
            await asyncio.sleep(0.05)
    return items
