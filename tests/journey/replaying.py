"""What tests of replays and redrives share: an embedder that can be mended, and waiting for what a replay comes to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from anabranch.background.lag import stage_lags
from anabranch.composition.overrides import Overrides
from sql.checksum import checksum
from sql.pool import close_pool, open_pool
from tests.fakes.choosy import Choosy
from tests.journey.conftest import PATIENCE_S, World


@pytest.fixture
def embedder() -> Choosy:
    return Choosy()


@pytest.fixture
def overrides(embedder: Choosy) -> Overrides:
    return Overrides(embedder=embedder)


async def post(world: World, path: str, body: dict[str, Any], status: int = 202) -> dict[str, Any]:
    response = await world.http.post(path, json=body)
    assert response.status_code == status, response.text
    return dict(response.json())


async def get(world: World, path: str) -> dict[str, Any]:
    response = await world.http.get(path)
    assert response.status_code == 200, response.text
    return dict(response.json())


async def until(true: Callable[[], Any]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await true():
            await asyncio.sleep(0.05)


async def ended(world: World, replay: str) -> dict[str, Any]:
    found: dict[str, Any] = {}

    async def is_done() -> bool:
        found.update(await get(world, f"/v1/replays/{replay}"))
        return found["state"] in ("done", "failed", "cancelled")

    await until(is_done)
    return found


async def letters(world: World) -> list[dict[str, Any]]:
    return list((await get(world, "/v1/dead-letters"))["items"])


async def failed(world: World, text: str, name: str) -> dict[str, Any]:
    receipt = await world.ingest(text, external_id=name)
    assert (await world.ended(receipt))["state"] == "failed"

    async def listed() -> bool:
        return any(letter["document_id"] == receipt["document_id"] for letter in await letters(world))

    await until(listed)
    return receipt


async def is_state(world: World, document: str, state: str) -> bool:
    return bool((await get(world, f"/v1/documents/{document}"))["state"] == state)


async def none_left(world: World) -> bool:
    return not await letters(world)


async def replayed(world: World, **chosen: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a dry run says, and what then happens."""
    dry = await post(world, "/v1/replays", {**chosen, "dry_run": True})
    return dry, await ended(world, (await post(world, "/v1/replays", chosen))["replay_id"])


async def idle(world: World) -> bool:
    """Nobody has anything to read."""
    return not any(line["lag"] for line in await stage_lags(world.worker.storage))


async def producers_told(world: World) -> set[tuple[str, str]]:
    """Event and outcome."""
    said = [stored.record async for stored in world.worker.storage.log.read("outcomes")]
    return {(json.loads(record.value or b"")["event_id"], record.headers["ce_type"].decode()) for record in said}


async def summed(dsn: str) -> dict[str, Any]:
    pool = await open_pool(dsn, size=1, name="test")
    try:
        return await checksum(pool)
    finally:
        await close_pool(pool)
