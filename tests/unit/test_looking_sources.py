"""Sources that are looked at again and again: a folder with files that nobody would wish for."""

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
from streams.memory import MemoryLog
from streams.sources.delivery import Delivery
from streams.sources.folder import FolderReader
from streams.sources.known import KnownItems
from streams.sources.memory import MemorySourceStore
from tests.said_by_sources import documents_there

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
LONG_AGO = 1_760_000_000


class Nobody:
    """Nothing was ever taken in."""

    async def declared(self) -> list[DeclaredSource]:
        return []

    async def documents(self, ce_source: str, after: str, limit: int) -> list[str]:
        return []


class CountingStore(MemorySourceStore):
    recalls = 0

    async def notes(self, source: str) -> dict[str, dict[str, Any]]:
        self.recalls += 1
        return await super().notes(source)


class Watched:
    def __init__(self, folder: Path, *, max_bytes: int = 1000, within: list[Path] | None = None) -> None:
        folder.mkdir(exist_ok=True)
        self.folder, self.log, self.store = folder, MemoryLog(lambda: MOMENT), CountingStore()
        source = DeclaredSource(SourceSpec(name="library", takes=FolderSource(path=str(folder))), 1)
        blobs = open_blobs("memory:///")
        known = KnownItems(source, self.store, Nobody(), Delivery(source.spec, Codec(), blobs, lambda: MOMENT), self.log, lambda: MOMENT)
        self.reader = FolderReader(source.spec.takes, known, blobs, max_bytes, lambda: MOMENT, within)  # type: ignore[arg-type]

    def put(self, name: str, text: str = "Herons stand.") -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (LONG_AGO + len(text), LONG_AGO + len(text)))
        return path

    async def look(self) -> tuple[set[str], dict[str, str]]:
        """What is there after it by the log, and what could not be looked at."""
        if not self.reader.known.items:
            await self.log.create_topics({"raw": 1}, retention_ms={})
        await self.reader.look()
        return await documents_there(self.log), (await self.store.notes("library"))["status"]["problems"]


@pytest.mark.parametrize("name", ["caf\u00e9 \u65e5\u672c \U0001f600.md", "line\nbreak.txt", " spaces .md", "100% sure?.txt", "a/b/c/d.md", "e\u0301.md"])
async def test_a_name_is_kept_as_it_is(name: str, tmp_path: Path) -> None:
    watched = Watched(tmp_path / "library")
    watched.put(name)
    assert await watched.look() == ({name}, {})


async def test_what_cannot_be_looked_at_is_told_of_and_holds_up_nothing_else(tmp_path: Path) -> None:
    watched = Watched(tmp_path / "library")
    watched.put("good.md")
    watched.put("/".join(["d" * 250] * 4 + ["e" * 100]))
    watched.put("large.md", "x" * 1001)
    for one, other in (("a", "b"), ("b", "a")):
        (watched.folder / one).symlink_to(other)
    (watched.folder / "nowhere").symlink_to("absent")
    (watched.folder / "around").symlink_to(".")
    os.mkfifo(watched.folder / "pipe")
    Path(os.fsdecode(os.fsencode(watched.folder) + b"/\xff.md")).write_text("no UTF-8")
    there, problems = await watched.look()
    assert there == {"good.md"}
    assert {name[:8]: reason.split(";")[0] for name, reason in problems.items()} == {
        "?.md": "the name is no UTF-8",
        "a": "Too many levels of symbolic links",
        "b": "Too many levels of symbolic links",
        "d" * 8: "the path has 1104 characters",
        "large.md": "1,001 bytes",
    }


async def test_documents_below_a_folder_that_cannot_be_read_just_now_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(tmp_path / "library")
    for name in ("top.md", "deep/one.md", "deep/er/two.md", "deeper.md"):
        watched.put(name)
    everything, _ = await watched.look()
    scandir = os.scandir

    def refusing(path: Path) -> Any:
        if Path(path).name == "deep":
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    (watched.folder / "deeper.md").unlink()
    assert await watched.look() == (everything - {"deeper.md"}, {"deep": "Permission denied"})
    monkeypatch.undo()
    (watched.folder / "deep/one.md").unlink()
    assert await watched.look() == ({"top.md", "deep/er/two.md"}, {})


async def test_documents_of_a_file_system_that_is_not_mounted_stay_until_it_is_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched, mounted = Watched(tmp_path / "library"), {"library": 1, "sub": 2}
    stat = Path.stat

    def on_devices(path: Path, **how: Any) -> Any:
        found = stat(path, **how)
        return os.stat_result((*found[:2], mounted[path.name], *found[3:])) if path.name in mounted else found

    monkeypatch.setattr(Path, "stat", on_devices)
    for name in ("top.md", "sub/one.md", "sub/two.md"):
        watched.put(name)
    everything, _ = await watched.look()
    mounted["sub"] = 1
    for name in ("one.md", "two.md"):
        (watched.folder / "sub" / name).rename(tmp_path / name)
    there, problems = await watched.look()
    assert there == everything and problems == dict.fromkeys(("sub/one.md", "sub/two.md"), "its file system is not mounted any more")
    mounted |= {"library": 7, "sub": 8}
    (tmp_path / "two.md").rename(watched.folder / "sub" / "two.md")
    assert await watched.look() == (everything - {"sub/one.md"}, {}), "the same file systems, numbered anew: what is gone now is gone"
    (watched.folder / "sub" / "two.md").unlink()
    assert await watched.look() == ({"top.md"}, {}), "the last file of a folder may go"


async def test_a_folder_that_goes_just_when_it_is_looked_at_withdraws_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(tmp_path / "library")
    watched.put("a.md")
    everything, _ = await watched.look()

    def gone(path: Path) -> Any:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(os, "scandir", gone)
    with pytest.raises(ConfigurationError, match="no folder"):
        await watched.look()
    monkeypatch.undo()
    assert await watched.look() == (everything, {})


async def test_where_folders_are_named_no_link_leads_out_of_them(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("of the machine")
    watched = Watched(tmp_path / "library", within=[tmp_path / "library"])
    watched.put("inside.md")
    (watched.folder / "good.md").symlink_to("inside.md")
    (watched.folder / "bad.md").symlink_to(tmp_path / "secret")
    there, problems = await watched.look()
    assert there == {"inside.md", "good.md"} and list(problems) == ["bad.md"]


async def test_a_file_that_grows_too_large_keeps_its_document_and_says_so(tmp_path: Path) -> None:
    watched = Watched(tmp_path / "library")
    watched.put("a.md")
    assert await watched.look() == ({"a.md"}, {})
    watched.put("a.md", "x" * 1001)
    there, problems = await watched.look()
    assert there == {"a.md"} and list(problems) == ["a.md"]


async def test_a_look_reads_nothing_of_what_is_remembered(tmp_path: Path) -> None:
    """A folder of many files is looked at every two seconds."""
    watched = Watched(tmp_path / "library")
    watched.put("a.md")
    await watched.look()
    before = watched.store.recalls
    await watched.reader.look()
    assert watched.store.recalls == before


async def test_a_file_that_is_just_being_written_anew_keeps_its_document(tmp_path: Path) -> None:
    """Most programs empty a file before they write it."""
    watched = Watched(tmp_path / "library")
    path = watched.put("a.md")
    await watched.look()
    path.write_text("")
    os.utime(path, (MOMENT.timestamp(), MOMENT.timestamp()))
    assert (await watched.look())[0] == {"a.md"}
    assert (await watched.look())[0] == set(), "it was meant"


async def test_another_file_of_the_same_size_and_time_is_a_change(tmp_path: Path) -> None:
    """Programs that unpack and copy set the time of a file to that of its origin."""
    watched = Watched(tmp_path / "library")
    path = watched.put("a.md", "Herons stand.")
    await watched.look()
    before = len([stored async for stored in watched.log.read("raw")])
    for text in ("Egrets stand.", "Storks stand."):
        draft = watched.put(".draft", text)
        draft.replace(path)
        await watched.look()
    assert len([stored async for stored in watched.log.read("raw")]) == before + 2
