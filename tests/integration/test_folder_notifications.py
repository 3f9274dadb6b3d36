"""The folder source with notifications of this machine's operating system, and without."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from streams.sources import folder_reader
from streams.sources.folder_scan import FolderChanges
from tests.support.eventually import eventually
from tests.support.raw_documents import read_current_documents
from tests.support.watched_folder import WatchedFolder

NEVER_S = 3600.0


class RunningFolder(WatchedFolder):
    @property
    def now(self) -> datetime:  # type: ignore[override]
        """Return the time of the machine, as files have it."""
        return datetime.now(UTC)

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Run the reader once it has finished its first scan and watches the folder."""
        await self.log.create_topics({"raw": 1}, retention_ms={})
        task = asyncio.create_task(self.reader.run())
        try:
            await eventually(lambda: self.reader.last_scan.folders)
            # The reader scans again when the watch has begun.
            await asyncio.sleep(0.5)
            yield
            if task.done():
                task.result()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def wait_for(self, *names: str) -> None:
        await eventually(
            lambda: read_current_documents(self.log), lambda documents: documents == set(names)
        )


@pytest.fixture
def watched(tmp_path: Path) -> RunningFolder:
    return RunningFolder(tmp_path / "library", within=[tmp_path / "library"], every_s=NEVER_S)


async def test_changes_are_ingested_without_waiting_for_a_scan(watched: RunningFolder) -> None:
    watched.write_file("a.md")
    async with watched.run():
        await watched.wait_for("a.md")
        started = time.monotonic()
        (watched.folder / "new.md").write_text("Egrets walk.")
        await watched.wait_for("a.md", "new.md")
        assert time.monotonic() - started < 30
        (watched.folder / "new.md").rename(watched.folder / "moved.md")
        await watched.wait_for("a.md", "moved.md")
        (watched.folder / "a.md").unlink()
        await watched.wait_for("moved.md")


async def test_files_of_new_folders_are_found(watched: RunningFolder) -> None:
    watched.write_file("deep/a.md")
    async with watched.run():
        (watched.folder / "new/deeper").mkdir(parents=True)
        (watched.folder / "new/deeper/b.md").write_text("Egrets walk.")
        await watched.wait_for("deep/a.md", "new/deeper/b.md")
        # The watch of the replaced folder is gone with it.
        (watched.folder / "deep").rename(watched.folder.parent / "elsewhere")
        (watched.folder / "deep").mkdir()
        await watched.wait_for("new/deeper/b.md")
        await asyncio.sleep(0.5)
        (watched.folder / "deep/c.md").write_text("Storks arrive.")
        await watched.wait_for("deep/c.md", "new/deeper/b.md")


async def test_half_written_file_waits_until_it_is_closed(watched: RunningFolder) -> None:
    async with watched.run():
        with (watched.folder / "a.md").open("w") as file:
            for _ in range(10):
                file.write("Herons stand. ")
                file.flush()
                await asyncio.sleep(0.05)
            assert await read_current_documents(watched.log) == set()
        await watched.wait_for("a.md")
        assert await watched.read_texts() == [("a.md", "Herons stand. " * 10)]


async def test_final_content_wins_when_a_file_is_rewritten_at_once(watched: RunningFolder) -> None:
    async with watched.run():
        for text in ("Herons", "Herons sit", "Herons stand.", "Storks stand."):
            (watched.folder / "a.md").write_text(text)
            await asyncio.sleep(0.02)

        async def read_last() -> str:
            return ([text for _, text in await watched.read_texts()] or [""])[-1]

        await eventually(read_last, lambda text: text == "Storks stand.")
        await eventually(lambda: not watched.reader.unsettled)
        assert await read_last() == "Storks stand."


async def test_link_to_outside_is_not_followed_on_notification(
    watched: RunningFolder, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("of the machine")
    async with watched.run():
        (watched.folder / "a.md").symlink_to(tmp_path / "secret")
        (watched.folder / "b.md").write_text("Herons stand.")
        await watched.wait_for("b.md")
        await eventually(lambda: watched.reader.problems, lambda problems: "a.md" in problems)
        assert await watched.read_texts() == [("b.md", "Herons stand.")]


async def test_scan_finds_what_notifications_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @asynccontextmanager
    async def watch_nothing(folders: Collection[Path]) -> AsyncIterator[FolderChanges]:
        yield FolderChanges()

    monkeypatch.setattr(folder_reader, "watch_folders", watch_nothing)
    watched = RunningFolder(tmp_path / "library", every_s=0.05)
    watched.write_file("a.md")
    async with watched.run():
        await watched.wait_for("a.md")
        watched.write_file("b.md")
        (watched.folder / "a.md").unlink()
        await watched.wait_for("b.md")


async def test_many_files_at_once_are_all_ingested(watched: RunningFolder) -> None:
    async with watched.run():
        for number in range(500):
            (watched.folder / f"{number}.md").write_text(f"Heron {number}.")
        await watched.wait_for(*(f"{number}.md" for number in range(500)))
        assert watched.log.appends < 250
        os.utime(watched.folder / "0.md")
        await asyncio.sleep(0.3)
        assert len(await watched.read_texts()) == 500
