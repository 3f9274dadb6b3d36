"""Without encryption the event's signature, or a comparison at ingress, finds a changed byte."""

from __future__ import annotations

from pathlib import Path

import asyncpg
import pytest

from anabranch.config.loader import load_settings
from anabranch.config.settings import Settings
from tests.support.api_world import ApiWorld
from tests.support.lineage import NOTE, ask_and_record, fetch_lineage


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(
        data_dir=tmp_path / "data", sets=["logging.level=error", "log.plain_tenants=default"]
    )


@pytest.mark.parametrize(
    ("topic", "before", "after", "fault"),
    [
        ("chunked", "74 euros", "94 euros", "UNSIGNED_EVENT"),
        ("chunked", "Travel is", "Gravel is", "UNSIGNED_EVENT"),
        ("ocr_done", "74 euros", "94 euros", "UNSIGNED_EVENT"),
        ("ocr_done", "Travel is", "Gravel is", "UNSIGNED_EVENT"),
        ("raw", "allowances", "Allowances", "differs from the one that ingress accepted"),
    ],
)
async def test_tampered_plain_text_event_is_detected(
    world: ApiWorld, database: str, topic: str, before: str, after: str, fault: str
) -> None:
    await world.ingest_until_searchable(NOTE, external_id="allowances")
    answer = await ask_and_record(world)
    connection = await asyncpg.connect(database)
    await connection.execute(
        "update anabranch.events set value = convert_to(replace(convert_from(value, 'UTF8'), $2, "
        "$3), 'UTF8') where topic = $1",
        topic,
        before,
        after,
    )
    await connection.close()
    found = await fetch_lineage(world, answer["run_id"])
    assert not found["verified"] and [
        f"{topic}[0]@" in one and fault in one for one in found["broken"]
    ] == [True], found["broken"]
