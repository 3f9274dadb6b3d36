"""What the API stages for an event goes once the door has pinned it, and no death in between loses the document."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from processors import receive
from schemas.events import Content, DocumentReceived
from schemas.ids import document_id, received_id, sha256_hex
from schemas.ports.bundle import blob_key
from schemas.staging import staged_prefix
from streams.partition import Bounds
from tests.property.world import FolderBlobs, Tripwire, World

BODY = b"a line\nanother line\n"
PINNED = blob_key("default", document_id("default", "", "a"), sha256_hex(BODY))


@dataclass
class FragileBlobs:
    """Blobs of a worker that may die before and after each call."""

    inner: FolderBlobs
    wire: Tripwire

    def __getattr__(self, name: str) -> Any:
        if name == "local":
            return self.inner.local

        async def call(*given: Any, **more: Any) -> Any:
            self.wire.cross()
            answer = await getattr(self.inner, name)(*given, **more)
            self.wire.cross()
            return answer

        return call


@dataclass
class Finished(World):
    crossings_of_the_door: int = 0


async def after(folder: Path, deaths: list[int], key: str, repeats: int = 1) -> Finished:
    """The world once an event that names `key` has been worked, at the door by workers that die at these crossings."""
    folder.mkdir()
    world = Finished(folder, [], 0, Bounds(), repeats)
    blobs: Any = world.ports.blobs
    world.ports = replace(world.ports, blobs=FragileBlobs(blobs, world.wire))  # type: ignore[arg-type]
    world.embedder.moody = False
    await blobs.put(key, BODY)
    await world.create_generation()
    await world.push(DocumentReceived(external_id="a", filename="a.txt", content=Content(storage_key=key)), "e1")
    world.wire.crossings, world.wire.deaths = 0, list(deaths)
    await world._drain(receive.STAGE)
    world.deaths, world.crossings_of_the_door = [], world.wire.crossings
    await world.run()
    return world


def own_key() -> str:
    return staged_prefix("default", received_id("default", "test", "e1")) + sha256_hex(BODY)


async def kept(world: World, key: str) -> bool:
    return await FolderBlobs(world.folder).size(key) is not None


async def test_wherever_a_worker_dies_the_document_is_there_and_its_staged_bytes_are_gone(tmp_path: Path) -> None:
    """Also where every event is delivered twice."""
    clean = await after(tmp_path / "clean", [], own_key())
    assert clean.outcomes() == {"e1": ["document.indexed.v1"]}
    assert clean.crossings_of_the_door > 8, "it may die before and after each call"
    for death in range(1, clean.crossings_of_the_door + 1):
        world = await after(tmp_path / str(death), [death], own_key(), repeats=2)
        assert world.tables() == clean.tables(), death
        assert not await kept(world, own_key()), death
        assert await kept(world, PINNED)


async def test_what_a_producer_keeps_itself_stays(tmp_path: Path) -> None:
    key = "uploads/default/contracts/a.txt"
    world = await after(tmp_path / "theirs", [], key)
    assert world.outcomes() == {"e1": ["document.indexed.v1"]}
    assert await kept(world, key)


async def test_nobody_else_may_name_what_is_staged_for_an_event(tmp_path: Path) -> None:
    key = staged_prefix("default", received_id("default", "test", "another")) + sha256_hex(BODY)
    world = await after(tmp_path / "other", [], key)
    assert ("receive", "FORBIDDEN_KEY") in world.tables()["buried"]
    assert await kept(world, key)
