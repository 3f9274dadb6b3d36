"""Ingress deletes an upload's staging blob, and no crash in between loses the document."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from processors import receive
from schemas.events import Content, DocumentReceived
from schemas.ids import (
    make_blob_key,
    make_document_id,
    make_received_id,
    sha256_hex,
    upload_staging_prefix,
)
from streams.partition_sink import PartitionLimits
from tests.support.simulated_pipeline import CrashInjector, FolderBlobs, SimulatedPipeline

BODY = b"a line\nanother line\n"
PINNED = make_blob_key("default", make_document_id("default", "", "a"), sha256_hex(BODY))


@dataclass
class CrashingBlobs:
    """Blobs of a worker that may crash before and after each call."""

    inner: FolderBlobs
    crash_injector: CrashInjector

    def __getattr__(self, name: str) -> Any:
        if name == "open_local":
            return self.inner.open_local

        async def call(*given: Any, **more: Any) -> Any:
            self.crash_injector.step()
            answer = await getattr(self.inner, name)(*given, **more)
            self.crash_injector.step()
            return answer

        return call

    async def move(self, source: str, target: str) -> None:
        # As a store without renaming, which may crash in between.
        await self.copy(source, target)
        await self.delete([source])


@dataclass
class FinishedPipeline(SimulatedPipeline):
    n_ingress_steps: int = 0


async def run_upload(
    folder: Path, deaths: list[int], key: str, repeats: int = 1
) -> FinishedPipeline:
    """Ingest an event that names `key` with workers that crash at the crossings in `deaths`."""
    folder.mkdir()
    world = FinishedPipeline(folder, [], 0, PartitionLimits(), repeats)
    blobs: Any = world.ports.blobs
    crashing_blobs: Any = CrashingBlobs(blobs, world.crash_injector)
    world.ports = replace(world.ports, blobs=crashing_blobs)
    world.embedder.flaky = False
    await blobs.put(key, BODY)
    await world.create_generation()
    await world.push(
        DocumentReceived(external_id="a", filename="a.txt", content=Content(storage_key=key)), "e1"
    )
    world.crash_injector.n_steps, world.crash_injector.crash_points = 0, list(deaths)
    await world._drain(receive.STAGE)
    world.crash_points, world.n_ingress_steps = [], world.crash_injector.n_steps
    await world.run()
    return world


def make_own_key() -> str:
    return upload_staging_prefix("default", make_received_id("default", "test", "e1")) + sha256_hex(
        BODY
    )


async def blob_exists(world: SimulatedPipeline, key: str) -> bool:
    return await FolderBlobs(world.folder).get_size(key) is not None


async def test_crash_at_any_step_keeps_document_and_deletes_staging(tmp_path: Path) -> None:
    """Also test every event delivered twice."""
    clean = await run_upload(tmp_path / "clean", [], make_own_key())
    assert clean.list_outcomes() == {"e1": ["document.indexed.v1"]}
    assert clean.n_ingress_steps > 8, "it may die before and after each call"
    for death in range(1, clean.n_ingress_steps + 1):
        world = await run_upload(tmp_path / str(death), [death], make_own_key(), repeats=2)
        assert world.read_visible_state() == clean.read_visible_state(), death
        assert not await blob_exists(world, make_own_key()), death
        assert await blob_exists(world, PINNED)


async def test_producer_owned_upload_is_not_deleted(tmp_path: Path) -> None:
    key = "uploads/default/contracts/a.txt"
    world = await run_upload(tmp_path / "theirs", [], key)
    assert world.list_outcomes() == {"e1": ["document.indexed.v1"]}
    assert await blob_exists(world, key)


async def test_staged_key_of_other_event_is_rejected(tmp_path: Path) -> None:
    key = upload_staging_prefix(
        "default", make_received_id("default", "test", "another")
    ) + sha256_hex(BODY)
    world = await run_upload(tmp_path / "other", [], key)
    assert ("receive", "FORBIDDEN_KEY") in world.read_visible_state()["dead_lettered"]
    assert await blob_exists(world, key)
