"""The folder source, with files that are hard to read."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from schemas.errors import ConfigurationError, DatabaseUnavailable
from streams.sources.folder_reader import FolderReader
from tests.support.watched_folder import NOW, WatchedFolder


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


async def test_scan_that_finds_what_the_last_one_did_looks_at_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: list[str] = []
    is_due = FolderReader._is_due

    def record(reader: FolderReader, name: str, *found: Any) -> bool:
        looked_at.append(name)
        return is_due(reader, name, *found)

    monkeypatch.setattr(FolderReader, "_is_due", record)
    watched = WatchedFolder(tmp_path / "library")
    for name in ("a.md", "b.md"):
        watched.write_file(name)
    for changed in (None, "a.md", "b.md"):
        if changed:
            watched.write_file(changed, "Herons wait for fish.")
        # The first scan ingests, the second finds that nothing is left, the others find the same.
        for _ in range(4):
            await watched.poll()
        assert looked_at == ["a.md", "b.md"] * 2
        looked_at.clear()
    assert [text for _, text in await watched.read_texts()].count("Herons wait for fish.") == 2


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


async def test_thousand_files_are_published_in_few_appends_around_problems(tmp_path: Path) -> None:
    watched = WatchedFolder(tmp_path / "library", within=[tmp_path])
    for number in range(1000):
        watched.write_file(f"{number % 7}/{number}.md", f"Heron {number}.")
    large = {watched.write_file(f"{n}/large-{n}.md", "x" * 1001).name for n in range(7)}
    (watched.folder / "3/outside.md").symlink_to("/etc/hostname")
    await watched.poll()
    assert sorted(await watched.read_texts()) == sorted(
        (f"{number % 7}/{number}.md", f"Heron {number}.") for number in range(1000)
    )
    status = (await watched.store.fetch_notes("library"))["status"]
    assert (status["items"], status["problem_count"]) == (1000, len(large) + 1)
    # A busy machine reads more slowly than it publishes, and so makes smaller batches.
    assert watched.log.appends < 500


async def test_batch_is_published_again_after_crash_before_its_notes(tmp_path: Path) -> None:
    watched = WatchedFolder(tmp_path / "library")
    for number in range(5):
        watched.write_file(f"{number}.md", f"Heron {number}.")
    await watched.log.create_topics({"raw": 1}, retention_ms={})
    watched.store.is_unavailable = True
    with pytest.raises(DatabaseUnavailable):
        await watched.reader.scan()
    published = await watched.read_texts()
    assert published, "the log has what the notes lack"
    watched.store.is_unavailable = False
    await watched.reader.item_states.load()
    await watched.reader.scan()
    again = (await watched.read_texts())[len(published) :]
    assert set(again) == {(f"{n}.md", f"Heron {n}.") for n in range(5)} >= set(published)
    await watched.reader.scan()
    assert len(await watched.read_texts()) == len(published) + 5


async def test_file_replaced_by_link_to_outside_after_scan_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_text("of the machine")
    watched = WatchedFolder(tmp_path / "library", within=[tmp_path / "library"])
    for name in ("a.md", "b.md", "c.md"):
        watched.write_file(name)

    def replace() -> None:
        (watched.folder / "b.md").unlink()
        (watched.folder / "b.md").symlink_to(tmp_path / "secret")

    watched.change_before_reads(monkeypatch, replace)
    documents, problems = await watched.poll()
    assert documents == {"a.md", "c.md"} and list(problems) == ["b.md"]
    assert "of the machine" not in [text for _, text in await watched.read_texts()]


async def test_folder_replaced_by_link_after_resolution_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/a.md").write_text("of the machine")
    watched = WatchedFolder(tmp_path / "library", within=[tmp_path / "library"])
    watched.write_file("deep/a.md")
    resolve = Path.resolve

    def resolve_then_replace(path: Path, strict: bool = False) -> Path:
        resolved = resolve(path, strict)
        if path.name == "a.md" and not (watched.folder / "deep").is_symlink():
            (watched.folder / "deep").rename(tmp_path / "moved")
            (watched.folder / "deep").symlink_to(tmp_path / "outside")
        return resolved

    monkeypatch.setattr(Path, "resolve", resolve_then_replace)
    documents, problems = await watched.poll()
    assert documents == set() and list(problems) == ["deep/a.md"]


async def test_file_replaced_by_pipe_after_scan_does_not_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = WatchedFolder(tmp_path / "library")
    path = watched.write_file("a.md")

    def replace() -> None:
        path.unlink()
        os.mkfifo(path)

    watched.change_before_reads(monkeypatch, replace)
    assert await watched.poll() == (set(), {"a.md": "not a regular file"})


async def test_recent_file_is_ingested_at_once_and_read_again_when_settled(tmp_path: Path) -> None:
    watched = WatchedFolder(tmp_path / "library")
    path = watched.write_file("a.md", "Herons stand.")
    os.utime(path, (NOW.timestamp(), NOW.timestamp()))
    assert (await watched.poll())[0] == {"a.md"}
    path.write_text("Egrets stand.")  # of the same size, and maybe within one tick of the clock
    os.utime(path, (NOW.timestamp(), NOW.timestamp()))
    watched.now += timedelta(seconds=3)
    await watched.poll()
    assert [text for _, text in await watched.read_texts()] == ["Herons stand.", "Egrets stand."]
    await watched.poll()
    assert len(await watched.read_texts()) == 2
    assert not watched.reader.unsettled


async def test_file_open_for_writing_is_not_ingested_early(tmp_path: Path) -> None:
    watched = WatchedFolder(tmp_path / "library")
    path = watched.write_file("a.md", "Herons")
    with path.open("a") as file:
        os.utime(path, (NOW.timestamp(), NOW.timestamp()))
        await watched.poll()
        assert await watched.read_texts() == []
        file.write(" stand.")
    os.utime(path, (NOW.timestamp(), NOW.timestamp()))
    await watched.poll()
    assert [text for _, text in await watched.read_texts()] == ["Herons stand."]


async def test_file_that_keeps_changing_is_ingested_once_a_second(tmp_path: Path) -> None:
    watched = WatchedFolder(tmp_path / "library")
    for number in range(30):
        path = watched.write_file("a.md", "x" * (number + 1))
        watched.now = NOW + timedelta(milliseconds=100 * number)
        os.utime(path, (watched.now.timestamp(), watched.now.timestamp()))
        await watched.poll()
    assert len(await watched.read_texts()) == 3
    watched.now += timedelta(seconds=2)
    await watched.poll()
    assert (await watched.read_texts())[-1] == ("a.md", "x" * 30)


async def test_deletion_of_many_files_is_published_in_pages(tmp_path: Path) -> None:
    watched = WatchedFolder(tmp_path / "library")
    for number in range(600):
        watched.write_file(f"{number}.md")
    await watched.poll()
    before = watched.log.appends
    for path in watched.folder.iterdir():
        path.unlink()
    assert (await watched.poll())[0] == set()
    assert watched.log.appends == before + 2
