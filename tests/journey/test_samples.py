"""The demo's questions over the sample documents, with the real engines."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import yaml

from anabranch.config.overrides import Overrides
from anabranch.config.settings import Settings
from tests.support.api_world import ApiWorld, run_system

SAMPLES = Path(__file__).parents[2] / "samples"

pytestmark = pytest.mark.slow


async def test_sample_questions_cite_expected_documents_and_near_misses_do_not(
    settings: Settings, database: str
) -> None:
    questions: list[dict[str, Any]] = yaml.safe_load(
        (SAMPLES / "questions.yaml").read_text(encoding="utf-8")
    )
    async with run_system(settings, database, Overrides()) as world:
        await asyncio.gather(
            *(ingest_file(world, path) for path in sorted((SAMPLES / "corpus").iterdir()))
        )
        for question in questions:
            answer = await world.ask(question["question"])
            if question["document"] is None:
                assert (answer["refused"], answer["code"]) == (True, question["code"]), answer
            else:
                lead = answer["citations"][0]
                assert lead["external_id"] == question["document"], answer
                assert question["says"] in lead["quote"], answer
                assert answer["language"] == question["language"]
                assert [
                    await fetch_cited_text(world, citation) for citation in answer["citations"]
                ] == [citation["quote"] for citation in answer["citations"]]
        await check_near_misses(world)


async def check_near_misses(world: ApiWorld) -> None:
    other_buoy = await world.ask("How far was buoy B-17 moved?")
    assert other_buoy["code"] == "NO_SUITABLE_CONTEXT" and "B-17" in other_buoy["message"]
    # The topic is there, the fact is not.
    absent_fact = await world.ask("How often is the ferry bell rung in fog?")
    assert absent_fact["confidence"]["level"] == "low"
    moved = await world.ask("How far was buoy 14 moved?")
    assert "40 metres" in moved["citations"][0]["quote"]
    assert "Buoy 14 moved" not in [citation["quote"] for citation in moved["citations"]]


async def fetch_cited_text(world: ApiWorld, citation: dict[str, Any]) -> str:
    """Return the document's Markdown at the citation's span."""
    markdown = (await world.http.get(f"/v1/documents/{citation['document_id']}/markdown")).text
    return markdown[citation["spans"][0]["char_start"] : citation["spans"][-1]["char_end"]]


async def ingest_file(world: ApiWorld, path: Path) -> None:
    await world.ingest_until_searchable(path.read_bytes(), path.name, external_id=path.name)
