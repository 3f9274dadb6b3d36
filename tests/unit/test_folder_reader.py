"""The folder source, with files that are hard to read."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from engines.blobs import open_blobs
from schemas.errors import ConfigurationError
from schemas.sources import DeclaredSource, FolderSource, SourceSpec
from streams.codec import Codec
from streams.memory_log import MemoryLog
from streams.sources.folder_reader import FolderReader
from streams.sources.item_state import ItemStates
from streams.sources.memory_store import MemorySourceStore
from streams.sources.raw_producer import RawProducer
from tests.fakes.known_documents import NoKnownDocuments
from tests.support.raw_documents import read_current_documents

NOW = datetime(2026, 1, 1, tzinfo=UTC)
OLD_MTIME_S = 1_760_000_000


class CountingStore(MemorySourceStore):
    recalls = 0

    async def fetch_notes(self, source: str) -> dict[str, dict[str, Any]]:
        self.recalls += 1
        return await super().fetch_notes(source)


class WatchedFolder:
    def __init__(
        self, folder: Path, *, max_bytes: int = 1000, within: list[Path] | None = None
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.folder, self.log, self.store = folder, MemoryLog(lambda: NOW), CountingStore()
        source = DeclaredSource(
            SourceSpec(name="library", connector=FolderSource(path=str(folder))), 1
        )
        blobs = open_blobs("memory:///")
        states = ItemStates(
            source,
            self.store,
            NoKnownDocuments(),
            RawProducer(source.spec, Codec(), blobs, lambda: NOW),
            self.log,
            lambda: NOW,
        )
        self.reader = FolderReader(
            source.spec.connector, states, blobs, max_bytes, lambda: NOW, within
        )  # type: ignore[arg-type]

    def write_file(self, name: str, text: str = "Herons stand.") -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (OLD_MTIME_S + len(text), OLD_MTIME_S + len(text)))
        return path

    async def poll(self) -> tuple[set[str], dict[str, str]]:
        """Poll once; return the documents by the log, and the reported problems."""
        if not self.reader.item_states.items:
            await self.log.create_topics({"raw": 1}, retention_ms={})
        await self.reader.scan()
        return await read_current_documents(self.log), (await self.store.fetch_notes("library"))[
            "status"
        ]["problems"]


@pytest.mark.parametrize(
    "name",
    [
        "caf\u00e9 \u65e5\u672c \U0001f600.md",
        "line\nbreak.txt",
        " spaces .md",
        "100% sure?.txt",
        "a/b/c/d.md",
        "e\u0301.md",
    ],
)
async def test_unusual_file_names_are_preserved(name: str, tmp_path: Path) -> None:
    watched = WatchedFolder(tmp_path / "library")
    watched.write_file(name)
    assert await watched.poll() == ({name}, {})


async def test_unreadable_entries_are_reported_without_blocking_others(tmp_path: Path) -> None:
    watched = WatchedFolder(tmp_path / "library")
    watched.write_file("good.md")
    watched.write_file("/".join(["d" * 250] * 4 + ["e" * 100]))
    watched.write_file("large.md", "x" * 1001)
    for one, other in (("a", "b"), ("b", "a")):
        (watched.folder / one).symlink_to(other)
    (watched.folder / "nowhere").symlink_to("absent")
    (watched.folder / "around").symlink_to(".")
    os.mkfifo(watched.folder / "pipe")
    Path(os.fsdecode(os.fsencode(watched.folder) + b"/\xff.md")).write_text("no UTF-8")
    documents, problems = await watched.poll()
    assert documents == {"good.md"}
    assert {name[:8]: reason.split(";")[0] for name, reason in problems.items()} == {
        "?.md": "the name is not UTF-8",
        "a": "Too many levels of symbolic links",
        "b": "Too many levels of symbolic links",
        "d" * 8: "the path has 1104 characters",
        "large.md": "1,001 bytes",
    }


async def test_documents_below_unreadable_folder_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = WatchedFolder(tmp_path / "library")
    for name in ("top.md", "deep/one.md", "deep/er/two.md", "deeper.md"):
        watched.write_file(name)
    everything, _ = await watched.poll()
    scandir = os.scandir

    def refusing(path: Path) -> Any:
        if Path(path).name == "deep":
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    (watched.folder / "deeper.md").unlink()
    assert await watched.poll() == (everything - {"deeper.md"}, {"deep": "Permission denied"})
    monkeypatch.undo()
    (watched.folder / "deep/one.md").unlink()
    assert await watched.poll() == ({"top.md", "deep/er/two.md"}, {})


async def test_documents_of_unmounted_file_system_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched, mounted = WatchedFolder(tmp_path / "library"), {"library": 1, "sub": 2}
    stat = Path.stat

    def on_devices(path: Path, **options: Any) -> Any:
        found = stat(path, **options)
        return (
            os.stat_result((*found[:2], mounted[path.name], *found[3:]))
            if path.name in mounted
            else found
        )

    monkeypatch.setattr(Path, "stat", on_devices)
    for name in ("top.md", "sub/one.md", "sub/two.md"):
        watched.write_file(name)
    everything, _ = await watched.poll()
    mounted["sub"] = 1
    for name in ("one.md", "two.md"):
        (watched.folder / "sub" / name).rename(tmp_path / name)
    documents, problems = await watched.poll()
    assert documents == everything and problems == dict.fromkeys(
        ("sub/one.md", "sub/two.md"), "its file system is no longer mounted"
    )
    mounted |= {"library": 7, "sub": 8}
    (tmp_path / "two.md").rename(watched.folder / "sub" / "two.md")
    assert await watched.poll() == (everything - {"sub/one.md"}, {}), (
        "the same file systems under new numbers: missing files are withdrawn"
    )
    (watched.folder / "sub" / "two.md").unlink()
    assert await watched.poll() == ({"top.md"}, {}), "the last file of a folder may go"


async def test_vanished_root_folder_withdraws_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = WatchedFolder(tmp_path / "library")
    watched.write_file("a.md")
    everything, _ = await watched.poll()

    def raise_not_found(path: Path) -> Any:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(os, "scandir", raise_not_found)
    with pytest.raises(ConfigurationError, match="does not exist"):
        await watched.poll()
    monkeypatch.undo()
    assert await watched.poll() == (everything, {})


async def test_symlinks_outside_allowed_folders_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("of the machine")
    watched = WatchedFolder(tmp_path / "library", within=[tmp_path / "library"])
    watched.write_file("inside.md")
    (watched.folder / "good.md").symlink_to("inside.md")
    (watched.folder / "bad.md").symlink_to(tmp_path / "secret")
    documents, problems = await watched.poll()
    assert documents == {"inside.md", "good.md"} and list(problems) == ["bad.md"]


async def test_file_grown_too_large_keeps_document_and_is_reported(tmp_path: Path) -> None:
    watched = WatchedFolder(tmp_path / "library")
    watched.write_file("a.md")
    assert await watched.poll() == ({"a.md"}, {})
    watched.write_file("a.md", "x" * 1001)
    documents, problems = await watched.poll()
    assert documents == {"a.md"} and list(problems) == ["a.md"]


async def test_poll_does_not_reload_stored_state(tmp_path: Path) -> None:
    """A folder of many files is scanned every two seconds."""
    watched = WatchedFolder(tmp_path / "library")
    watched.write_file("a.md")
    await watched.poll()
    before = watched.store.recalls
    await watched.reader.scan()
    assert watched.store.recalls == before


async def test_file_briefly_empty_during_rewrite_keeps_its_document(tmp_path: Path) -> None:
    """Most programs empty a file before they write it."""
    watched = WatchedFolder(tmp_path / "library")
    path = watched.write_file("a.md")
    await watched.poll()
    path.write_text("")
    os.utime(path, (NOW.timestamp(), NOW.timestamp()))
    assert (await watched.poll())[0] == {"a.md"}
    assert (await watched.poll())[0] == set(), "it was meant"


async def test_replaced_file_with_same_size_and_mtime_is_detected(tmp_path: Path) -> None:
    """Archive and copy tools set a file's modification time to that of its origin."""
    watched = WatchedFolder(tmp_path / "library")
    path = watched.write_file("a.md", "Herons stand.")
    await watched.poll()
    before = len([stored async for stored in watched.log.read("raw")])
    for text in ("Egrets stand.", "Storks stand."):
        draft = watched.write_file(".draft", text)
        draft.replace(path)
        await watched.poll()
    assert len([stored async for stored in watched.log.read("raw")]) == before + 2
