"""Helpers of replay and redrive tests: a repairable embedder, and waiting for replays."""

from __future__ import annotations

import json
from typing import Any

import pytest

from anabranch.config.overrides import Overrides
from services.monitoring.lag_diagnosis import fetch_stage_lags
from sql.database import close_pool, open_pool
from sql.operations.integrity import compute_checksum
from tests.fakes.ocr import RejectingEmbedder
from tests.support.api_world import ApiWorld
from tests.support.eventually import eventually


@pytest.fixture
def embedder() -> RejectingEmbedder:
    return RejectingEmbedder()


@pytest.fixture
def overrides(embedder: RejectingEmbedder) -> Overrides:
    return Overrides(embedder=embedder)


async def post(
    world: ApiWorld, path: str, body: dict[str, Any], status: int = 202
) -> dict[str, Any]:
    response = await world.http.post(path, json=body)
    assert response.status_code == status, response.text
    return dict(response.json())


async def get(world: ApiWorld, path: str) -> dict[str, Any]:
    response = await world.http.get(path)
    assert response.status_code == 200, response.text
    return dict(response.json())


async def wait_for_replay(world: ApiWorld, replay: str) -> dict[str, Any]:
    found: dict[str, Any] = {}

    async def is_done() -> bool:
        found.update(await get(world, f"/v1/replays/{replay}"))
        return found["state"] in ("done", "failed", "cancelled")

    await eventually(is_done)
    return found


async def fetch_dead_letters(world: ApiWorld) -> list[dict[str, Any]]:
    return list((await get(world, "/v1/dead-letters"))["items"])


async def ingest_until_failed(world: ApiWorld, text: str, name: str) -> dict[str, Any]:
    receipt = await world.ingest(text, external_id=name)
    assert (await world.wait_until_final(receipt))["state"] == "failed"

    async def listed() -> bool:
        return any(
            letter["document_id"] == receipt["document_id"]
            for letter in await fetch_dead_letters(world)
        )

    await eventually(listed)
    return receipt


async def has_state(world: ApiWorld, document: str, state: str) -> bool:
    return bool((await get(world, f"/v1/documents/{document}"))["state"] == state)


async def has_no_dead_letters(world: ApiWorld) -> bool:
    return not await fetch_dead_letters(world)


async def dry_run_and_replay(
    world: ApiWorld, **chosen: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the answer of a dry run and the result of the replay."""
    dry = await post(world, "/v1/replays", {**chosen, "dry_run": True})
    return dry, await wait_for_replay(
        world, (await post(world, "/v1/replays", chosen))["replay_id"]
    )


async def is_idle(world: ApiWorld) -> bool:
    """Return whether every stage has read its topic to the end."""
    return not any(line["lag"] for line in await fetch_stage_lags(world.worker.storage))


async def read_outcomes(world: ApiWorld) -> set[tuple[str, str]]:
    """Return event id and type of each outcome."""
    records = [stored.record async for stored in world.worker.storage.log.read("outcomes")]
    return {
        (json.loads(record.value or b"")["event_id"], record.headers["ce_type"].decode())
        for record in records
    }


async def compute_database_checksum(dsn: str) -> dict[str, Any]:
    pool = await open_pool(dsn, size=1, name="test")
    try:
        return await compute_checksum(pool)
    finally:
        await close_pool(pool)
