"""A folder that is looked at again and again: files that are new, changed, moved or gone, also since a time when nobody looked.

A document is the path below the folder; a file that moves is the end of one document and the beginning of another. Hidden files and folders are left out.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from fnmatch import fnmatch
from pathlib import Path

from schemas.errors import ConfigurationError, LimitExceeded
from schemas.events import Content, DocumentReceived
from schemas.ports.engines import Blobs
from schemas.sources import FolderSource
from streams.sources.known import KnownItems

CHUNK = 1 << 20
SETTLED_S = 1.0
"""A file that was written to this recently is looked at once more before it is taken: it may be half of one."""
Stamp = tuple[int, int]


@dataclass(slots=True)
class FolderReader:
    """Runs until cancelled, or raises ConfigurationError where the folder is away: a missing folder withdraws nothing. For one process at a time."""

    takes: FolderSource
    known: KnownItems
    blobs: Blobs
    max_bytes: int
    clock: Callable[[], datetime]
    seen: dict[str, Stamp] = field(default_factory=dict)
    """Size and time of change at the last look."""

    async def run(self) -> None:
        await self.known.recall()
        while True:
            await self.look()
            await asyncio.sleep(self.takes.every_s)

    async def look(self) -> None:
        """Once."""
        found = await asyncio.to_thread(self._walk)
        problems: dict[str, str] = {}
        for name, stamp in sorted(found.items()):
            if self._is_new(name, stamp) and self._is_settled(name, stamp):
                await self._take(name, stamp, problems)
        for name in sorted(self.known.live() - set(found)):
            await self.known.withdrawn(name)
        self.seen = found
        await self.known.status("watching", problems)

    def _walk(self) -> dict[str, Stamp]:
        """Files with something in them, by path below the folder."""
        root = Path(self.takes.path)
        if not root.is_dir():
            raise ConfigurationError(
                f"there is no folder {root} on this machine", code="FOLDER_MISSING", remedy="Mount or make it; until then its documents stay as they are."
            )
        return {path.relative_to(root).as_posix(): (size, changed) for path, size, changed in _files(root) if size and fnmatch(path.name, self.takes.glob)}

    def _is_new(self, name: str, stamp: Stamp) -> bool:
        item = self.known.items.get(name, {})
        return not item.get("live") or item.get("stamp") != list(stamp)

    def _is_settled(self, name: str, stamp: Stamp) -> bool:
        return self.seen.get(name) == stamp or self.clock().timestamp() - stamp[1] / 1e9 > SETTLED_S

    async def _take(self, name: str, stamp: Stamp, problems: dict[str, str]) -> None:
        path = Path(self.takes.path) / name
        try:
            sha256 = await asyncio.to_thread(_sha256, path)
            item = self.known.items.get(name, {})
            if item.get("live") and item.get("sha256") == sha256:
                await self.known.remember(name, {**item, "stamp": list(stamp)})
                return
            mark = self.known.next_mark(name)
            stored = await self.blobs.put_stream(self.known.delivery.staging(name, mark), _chunks(path), limit=self.max_bytes)
        except (OSError, LimitExceeded) as error:
            problems[name] = str(error)
            return
        await self.known.received(self._document(name, path, stored.key), mark, {"sha256": stored.sha256, "stamp": list(stamp)})

    def _document(self, name: str, path: Path, key: str) -> DocumentReceived:
        spec = self.known.source.spec
        return DocumentReceived(
            tenant=spec.tenant,
            external_id=name,
            content=Content(storage_key=key),
            filename=path.name,
            source_uri=path.as_uri(),
            collection=spec.collection,
            tags=spec.tags,
        )


def _files(folder: Path) -> Iterator[tuple[Path, int, int]]:
    """Regular files at any depth; links to folders are not followed, so that there is no circle. What goes while it is looked at is gone."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except FileNotFoundError:
        return
    for entry in entries:
        if entry.name.startswith(".") or not _is_text(entry.name):
            continue
        try:
            if entry.is_dir(follow_symlinks=False):
                yield from _files(Path(entry.path))
            elif entry.is_file():
                stat = entry.stat()
                yield Path(entry.path), stat.st_size, stat.st_mtime_ns
        except FileNotFoundError:
            continue


def _is_text(name: str) -> bool:
    """A name in bytes that are no UTF-8 cannot be written down."""
    return name == name.encode(errors="replace").decode()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


async def _chunks(path: Path) -> AsyncIterator[bytes]:
    with await asyncio.to_thread(path.open, "rb") as file:
        while chunk := await asyncio.to_thread(file.read, CHUNK):
            yield chunk
