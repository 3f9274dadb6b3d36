"""Folder source: scans a folder periodically for new, changed, moved and deleted files.

The path below the folder identifies a document, so a moved file is a withdrawal and a new document.
Hidden files and folders are ignored. Unreadable files and folders are reported, and their documents
stay.
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
from schemas.ports.engines import BlobStore
from schemas.sources import FolderSource
from streams.sources.item_state import ItemStates

CHUNK_BYTES = 1 << 20
SETTLE_TIME_S = 1.0
"""A file modified more recently may be incomplete: it is ingested when the next scan finds it
unchanged.
"""
MAX_NAME_CHARS, MAX_URI_CHARS = 1024, 8192
FileStamp = tuple[int, int, int]
"""Size, mtime, ctime in ns. ctime detects a replacement by a file of the same size and mtime."""


@dataclass(slots=True)
class FolderScan:
    """Result of one scan. All names are paths below the folder."""

    files: dict[str, FileStamp] = field(default_factory=dict)
    empty_files: dict[str, FileStamp] = field(default_factory=dict)
    """Not documents, or files about to be rewritten."""
    problems: dict[str, str] = field(default_factory=dict)
    """Reason by file, or by folder for everything below it."""
    devices: dict[str, int] = field(default_factory=dict)
    """Device number of the file system of each folder; `.` is the watched folder."""

    def resolve_device(self, name: str) -> int:
        """Return the device of the nearest existing parent folder."""
        return next(
            self.devices[folder]
            for parent in PurePosixPath(name).parents
            if (folder := parent.as_posix()) in self.devices
        )

    def is_deleted(self, name: str) -> bool:
        """Return whether the file does not exist: neither found nor in a folder that could not be
        read.
        """
        path_and_parents = [name, *(parent.as_posix() for parent in PurePosixPath(name).parents)]
        return name not in self.files and not any(
            folder in self.problems for folder in path_and_parents
        )


@dataclass(slots=True)
class FolderReader:
    """Runs until cancelled, in one process at a time.

    Raises ConfigurationError if the folder does not exist; a missing folder withdraws no documents.
    """

    config: FolderSource
    item_states: ItemStates
    blobs: BlobStore
    max_bytes: int
    clock: Callable[[], datetime]
    allowed_roots: Sequence[Path] | None = None
    """Folders to which symbolic links may point; None allows any."""
    previous_stamps: dict[str, FileStamp] = field(default_factory=dict)
    """Stamps found by the previous scan."""

    async def run(self) -> None:
        await self.item_states.load()
        while True:
            await self.scan()
            await asyncio.sleep(self.config.every_s)

    async def scan(self) -> None:
        """Scan once, ingest new and changed files and withdraw deleted ones."""
        folder_scan = await asyncio.to_thread(self._walk)
        # Before any withdrawal: an unmounted share looks like a folder whose files were deleted.
        unmounted = self._find_unmounted(folder_scan)
        for name, stamp in sorted(folder_scan.files.items()):
            item, device = self.item_states.items.get(name, {}), folder_scan.resolve_device(name)
            is_new = not item.get("live") or item.get("stamp") != list(stamp)
            if is_new and self._is_settled(name, stamp):
                await self._ingest_file(name, stamp, folder_scan)
            elif item.get("live") and item.get("device") != device:
                await self.item_states.store_item(name, {**item, "device": device})
        for name in sorted(
            filter(folder_scan.is_deleted, self.item_states.list_live() - unmounted)
        ):
            # An editor may truncate a file before it writes it again.
            if name not in folder_scan.empty_files or self._is_settled(
                name, folder_scan.empty_files[name]
            ):
                await self.item_states.publish_withdrawn(name)
        folder_scan.problems |= dict.fromkeys(unmounted, "its file system is no longer mounted")
        self.previous_stamps = folder_scan.files | folder_scan.empty_files
        await self.item_states.store_status("watching", folder_scan.problems)

    def _find_unmounted(self, folder_scan: FolderScan) -> set[str]:
        """Return live documents whose file system was unmounted: their files are not deleted."""
        # Device numbers may change with a restart: files that still exist map old numbers to new
        # ones.
        current_devices: dict[int, set[int]] = {}
        for name in folder_scan.files:
            current_devices.setdefault(
                self.item_states.items.get(name, {}).get("device", -1), set()
            ).add(folder_scan.resolve_device(name))
        deleted_devices = {
            name: self.item_states.items[name].get("device")
            for name in filter(folder_scan.is_deleted, self.item_states.list_live())
        }
        return {
            name
            for name, device in deleted_devices.items()
            if device is not None
            and folder_scan.resolve_device(name)
            not in current_devices.get(device, set()) | {device}
        }

    def _walk(self) -> FolderScan:
        root, folder_scan = Path(self.config.path), FolderScan()
        if root.is_dir():
            self._walk_folder(root, root, folder_scan)
        # The folder itself is missing: without this check every document would be withdrawn.
        if not folder_scan.devices and not folder_scan.problems:
            raise ConfigurationError(
                f"Folder {root} does not exist on this machine.",
                code="FOLDER_MISSING",
                remedy="Mount or create it. Until then its documents stay as they are.",
            )
        return folder_scan

    def _walk_folder(self, folder: Path, root: Path, folder_scan: FolderScan) -> None:
        """Collect regular files at any depth, without following links to folders (cycles)."""
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
            folder_scan.devices[folder.relative_to(root).as_posix()] = folder.stat().st_dev
        except FileNotFoundError:  # deleted during the scan
            return
        except OSError as error:
            folder_scan.problems[_replace_undecodable(folder.relative_to(root).as_posix())] = (
                error.strerror or str(error)
            )
            return
        for entry in entries:
            if entry.name.startswith("."):
                continue
            try:
                self._walk_entry(entry, root, folder_scan)
            except FileNotFoundError:
                continue
            except OSError as error:
                folder_scan.problems[
                    _replace_undecodable(Path(entry.path).relative_to(root).as_posix())
                ] = error.strerror or str(error)

    def _walk_entry(self, entry: os.DirEntry[str], root: Path, folder_scan: FolderScan) -> None:
        path = Path(entry.path)
        name = path.relative_to(root).as_posix()
        if name != _replace_undecodable(name):
            folder_scan.problems[_replace_undecodable(name)] = "the name is not UTF-8"
        elif entry.is_dir(follow_symlinks=False):
            self._walk_folder(path, root, folder_scan)
        elif entry.is_file() and fnmatch(entry.name, self.config.glob):
            stat = entry.stat()
            if reason := self._find_rejection_reason(entry, name, stat.st_size):
                folder_scan.problems[name] = reason
            else:
                (folder_scan.files if stat.st_size else folder_scan.empty_files)[name] = (
                    stat.st_size,
                    stat.st_mtime_ns,
                    stat.st_ctime_ns,
                )

    def _find_rejection_reason(self, entry: os.DirEntry[str], name: str, size: int) -> str | None:
        if len(name) > MAX_NAME_CHARS:
            return f"the path has {len(name)} characters; {MAX_NAME_CHARS} are allowed"
        if size > self.max_bytes:
            return f"{size:,} bytes; {self.max_bytes:,} are allowed"
        if (
            self.allowed_roots is not None
            and entry.is_symlink()
            and not any(
                Path(entry.path).resolve().is_relative_to(root) for root in self.allowed_roots
            )
        ):
            return "a link to a file outside the allowed folders"
        return None

    def _is_settled(self, name: str, stamp: FileStamp) -> bool:
        return (
            self.previous_stamps.get(name) == stamp
            or self.clock().timestamp() - stamp[1] / 1e9 > SETTLE_TIME_S
        )

    async def _ingest_file(self, name: str, stamp: FileStamp, folder_scan: FolderScan) -> None:
        path, file_fields = (
            Path(self.config.path) / name,
            {"stamp": list(stamp), "device": folder_scan.resolve_device(name)},
        )
        try:
            sha256 = await asyncio.to_thread(_compute_sha256, path)
            item = self.item_states.items.get(name, {})
            # Touched, copied back or restored: the same bytes are no new revision.
            if item.get("live") and item.get("sha256") == sha256:
                await self.item_states.store_item(name, {**item, **file_fields})
                return
            # The mark names the staging prefix, so it is chosen before the upload.
            mark = self.item_states.compute_next_mark(name)
            blob = await self.blobs.put_stream(
                self.item_states.raw_producer.get_staging_prefix(name, mark),
                _read_chunks(path),
                limit=self.max_bytes,
            )
        except (OSError, LimitExceeded) as error:
            folder_scan.problems[name] = (
                error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            )
            return
        await self.item_states.publish_received(
            self._build_document(name, path, blob.key), mark, {"sha256": blob.sha256, **file_fields}
        )

    def _build_document(self, name: str, path: Path, key: str) -> DocumentReceived:
        spec, uri = self.item_states.source.spec, path.as_uri()
        return DocumentReceived(
            tenant=spec.tenant,
            external_id=name,
            content=Content(storage_key=key),
            filename=path.name,
            source_uri=uri if len(uri) <= MAX_URI_CHARS else None,
            collection=spec.collection,
            tags=spec.tags,
        )


def _replace_undecodable(name: str) -> str:
    """Replace the surrogates by which Python represents file names that are not UTF-8."""
    return name.encode(errors="replace").decode()


def _compute_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


async def _read_chunks(path: Path) -> AsyncIterator[bytes]:
    with await asyncio.to_thread(path.open, "rb") as file:
        while chunk := await asyncio.to_thread(file.read, CHUNK_BYTES):
            yield chunk
