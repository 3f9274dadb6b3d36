"""A folder that is looked at again and again: files that are new, changed, moved or gone, also since a time when nobody looked.

A document is the path below the folder; a file that moves is the end of one document and the beginning of another. Hidden files and folders are left out.
What cannot be looked at is told of, and what is known of it stays.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

from schemas.errors import ConfigurationError, LimitExceeded
from schemas.events import Content, DocumentReceived
from schemas.ports.engines import Blobs
from schemas.sources import FolderSource
from streams.sources.known import KnownItems

CHUNK = 1 << 20
SETTLED_S = 1.0
"""A file that was written to this recently is looked at once more before it is taken: it may be half of one."""
LONGEST_NAME, LONGEST_URI = 1024, 8192
Stamp = tuple[int, int, int]
"""Size, time of the last change, and of the last change of anything about it: two files may have the first two in common, and one be put in the other's place."""


@dataclass(slots=True)
class Look:
    """Files with something in them, and what could not be looked at (a file, or a folder with all below it) with the reason; by path below the folder."""

    found: dict[str, Stamp] = field(default_factory=dict)
    empty: dict[str, Stamp] = field(default_factory=dict)
    """No documents; or somebody is just writing them anew."""
    problems: dict[str, str] = field(default_factory=dict)
    devices: dict[str, int] = field(default_factory=dict)
    """The file system that each folder lies on, by its path; `.` is the folder that is watched."""

    def device(self, name: str) -> int:
        """Of the nearest folder above it that is there."""
        return next(self.devices[place] for parent in PurePosixPath(name).parents if (place := parent.as_posix()) in self.devices)

    def is_gone(self, name: str) -> bool:
        """Whether the file is known not to be there."""
        above = [name, *(parent.as_posix() for parent in PurePosixPath(name).parents)]
        return name not in self.found and not any(place in self.problems for place in above)


@dataclass(slots=True)
class FolderReader:
    """Runs until cancelled, or raises ConfigurationError where the folder is away: a missing folder withdraws nothing. For one process at a time."""

    takes: FolderSource
    known: KnownItems
    blobs: Blobs
    max_bytes: int
    clock: Callable[[], datetime]
    within: Sequence[Path] | None = None
    """Where a link to a file may lead; None: anywhere."""
    seen: dict[str, Stamp] = field(default_factory=dict)
    """At the last look."""

    async def run(self) -> None:
        await self.known.recall()
        while True:
            await self.look()
            await asyncio.sleep(self.takes.every_s)

    async def look(self) -> None:
        """Once."""
        look = await asyncio.to_thread(self._walk)
        unmounted = self._unmounted(look)
        for name, stamp in sorted(look.found.items()):
            if self._is_new(name, stamp) and self._is_settled(name, stamp):
                await self._take(name, stamp, look)
            elif (item := self.known.items.get(name, {})).get("live") and item.get("device") != look.device(name):
                await self.known.remember(name, {**item, "device": look.device(name)})
        for name in sorted(filter(look.is_gone, self.known.live() - unmounted)):
            if name not in look.empty or self._is_settled(name, look.empty[name]):
                await self.known.withdrawn(name)
        look.problems |= dict.fromkeys(unmounted, "its file system is not mounted any more")
        self.seen = look.found | look.empty
        await self.known.status("watching", look.problems)

    def _unmounted(self, look: Look) -> set[str]:
        """What is not there where another file system is now. After a restart the same one may have another number: some file that is still there tells."""
        now: dict[int, set[int]] = {}
        for name in look.found:
            now.setdefault(self.known.items.get(name, {}).get("device", -1), set()).add(look.device(name))
        gone = {name: self.known.items[name].get("device") for name in filter(look.is_gone, self.known.live())}
        return {name for name, device in gone.items() if device is not None and look.device(name) not in now.get(device, set()) | {device}}

    def _walk(self) -> Look:
        root, look = Path(self.takes.path), Look()
        if root.is_dir():
            self._walk_folder(root, root, look)
        if not look.devices and not look.problems:
            raise ConfigurationError(
                f"there is no folder {root} on this machine", code="FOLDER_MISSING", remedy="Mount or make it; until then its documents stay as they are."
            )
        return look

    def _walk_folder(self, folder: Path, root: Path, look: Look) -> None:
        """Regular files at any depth; links to folders are not followed, so that there is no circle. What goes while it is looked at is gone."""
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
            look.devices[folder.relative_to(root).as_posix()] = folder.stat().st_dev
        except FileNotFoundError:
            return
        except OSError as error:
            look.problems[_writable(folder.relative_to(root).as_posix())] = error.strerror or str(error)
            return
        for entry in entries:
            if entry.name.startswith("."):
                continue
            try:
                self._walk_entry(entry, root, look)
            except FileNotFoundError:
                continue
            except OSError as error:
                look.problems[_writable(Path(entry.path).relative_to(root).as_posix())] = error.strerror or str(error)

    def _walk_entry(self, entry: os.DirEntry[str], root: Path, look: Look) -> None:
        path = Path(entry.path)
        name = path.relative_to(root).as_posix()
        if name != _writable(name):
            look.problems[_writable(name)] = "the name is no UTF-8"
        elif entry.is_dir(follow_symlinks=False):
            self._walk_folder(path, root, look)
        elif entry.is_file() and fnmatch(entry.name, self.takes.glob):
            stat = entry.stat()
            if reason := self._refusal(entry, name, stat.st_size):
                look.problems[name] = reason
            else:
                (look.found if stat.st_size else look.empty)[name] = (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)

    def _refusal(self, entry: os.DirEntry[str], name: str, size: int) -> str | None:
        if len(name) > LONGEST_NAME:
            return f"the path has {len(name)} characters; {LONGEST_NAME} are allowed"
        if size > self.max_bytes:
            return f"{size:,} bytes; {self.max_bytes:,} are allowed"
        if self.within is not None and entry.is_symlink() and not any(Path(entry.path).resolve().is_relative_to(root) for root in self.within):
            return "a link that leads out of the folders that may be watched"
        return None

    def _is_new(self, name: str, stamp: Stamp) -> bool:
        item = self.known.items.get(name, {})
        return not item.get("live") or item.get("stamp") != list(stamp)

    def _is_settled(self, name: str, stamp: Stamp) -> bool:
        return self.seen.get(name) == stamp or self.clock().timestamp() - stamp[1] / 1e9 > SETTLED_S

    async def _take(self, name: str, stamp: Stamp, look: Look) -> None:
        path, place = Path(self.takes.path) / name, {"stamp": list(stamp), "device": look.device(name)}
        try:
            sha256 = await asyncio.to_thread(_sha256, path)
            item = self.known.items.get(name, {})
            if item.get("live") and item.get("sha256") == sha256:
                await self.known.remember(name, {**item, **place})
                return
            mark = self.known.next_mark(name)
            stored = await self.blobs.put_stream(self.known.delivery.staging(name, mark), _chunks(path), limit=self.max_bytes)
        except (OSError, LimitExceeded) as error:
            look.problems[name] = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            return
        await self.known.received(self._document(name, path, stored.key), mark, {"sha256": stored.sha256, **place})

    def _document(self, name: str, path: Path, key: str) -> DocumentReceived:
        spec = self.known.source.spec
        return DocumentReceived(
            tenant=spec.tenant,
            external_id=name,
            content=Content(storage_key=key),
            filename=path.name,
            source_uri=_uri(path),
            collection=spec.collection,
            tags=spec.tags,
        )


def _writable(name: str) -> str:
    """A name in bytes that are no UTF-8 cannot be written down as it is."""
    return name.encode(errors="replace").decode()


def _uri(path: Path) -> str | None:
    found = path.as_uri()
    return found if len(found) <= LONGEST_URI else None


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


async def _chunks(path: Path) -> AsyncIterator[bytes]:
    with await asyncio.to_thread(path.open, "rb") as file:
        while chunk := await asyncio.to_thread(file.read, CHUNK):
            yield chunk
