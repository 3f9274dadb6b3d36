"""Folder source: ingests new and changed files and withdraws deleted ones.

Notifications report changes at once. A periodic scan finds what they missed, and what happened
while no reader ran. The path below the folder identifies a document, so a moved file is a
withdrawal and a new document. Documents of files that cannot be read stay.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from schemas.errors import LimitExceeded
from schemas.events import Content, DocumentReceived
from schemas.ports.engines import BlobStore
from schemas.sources import FolderSource
from streams.sources.concurrent_batches import run_in_batches
from streams.sources.folder_scan import (
    FileBytes,
    FileStamp,
    FolderChanges,
    FolderScan,
    FolderScanner,
    may_have_writer,
    open_file,
    read_file,
    watch_folders,
)
from streams.sources.item_state import ItemChange, ItemStates

CHUNK_BYTES = 1 << 20
MAX_CONCURRENT_READS = 64
MAX_HELD_BYTES = 100_000
"""Longer files are streamed, so that a batch holds at most 64 times this."""
SETTLE_TIME_S = 1.0
"""A file modified more recently may change again without another stamp, or be incomplete."""
FIRST_RECHECK_S = 0.02
MAX_URI_CHARS = 8192


@dataclass(frozen=True, slots=True)
class EarlyRead:
    """A file that was ingested before it had settled. It is read again once it has."""

    stamp: FileStamp
    read_at: float


@dataclass(slots=True)
class FolderReader:
    """Runs until cancelled, in one process at a time. Raises ConfigurationError if the folder does
    not exist.
    """

    config: FolderSource
    item_states: ItemStates
    blobs: BlobStore
    max_bytes: int
    clock: Callable[[], datetime]
    allowed_roots: Sequence[Path] | None = None
    """Folders to which symbolic links may point; None allows any."""
    previous_stamps: dict[str, FileStamp] = field(default_factory=dict)
    """Stamps found by the previous periodic scan."""
    early_reads: dict[str, EarlyRead] = field(default_factory=dict)
    unsettled: set[str] = field(default_factory=set)
    """Names of files to look at again soon."""
    problems: dict[str, str] = field(default_factory=dict)
    last_scan: FolderScan = field(default_factory=FolderScan)
    ingested_files: dict[str, FileStamp] = field(default_factory=dict)
    """Files of the last scan, if all of them were ingested."""
    next_scan_at: float = 0.0
    recheck_s: float = FIRST_RECHECK_S

    @property
    def scanner(self) -> FolderScanner:
        return FolderScanner(
            Path(self.config.path),
            self.config.glob,
            self.max_bytes,
            self.allowed_roots,
            self.config.include,
        )

    async def run(self) -> None:
        await self.item_states.load()
        await self.scan()
        while True:
            folders = self.last_scan.folders
            async with watch_folders([self.scanner.root / name for name in folders]) as changes:
                # New folders, and those replaced by others of their name, have no watch yet.
                while self.last_scan.folders == folders:
                    await self._follow(changes)

    async def scan(self) -> None:
        """Scan the folder, ingest new and changed files and withdraw deleted ones."""
        self.next_scan_at = time.monotonic() + self.config.every_s
        await self._apply_scan()
        self.previous_stamps = self.last_scan.files | self.last_scan.empty_files

    async def _follow(self, changes: FolderChanges) -> None:
        """Wait for changes and ingest them, or scan if that is due."""
        remaining_s = self.next_scan_at - time.monotonic()
        if remaining_s <= 0:
            await self.scan()
            return
        paths = await changes.collect(
            min(remaining_s, self.recheck_s) if self.unsettled else remaining_s
        )
        # A file that is being written is looked at soon, then at growing intervals.
        self.recheck_s = FIRST_RECHECK_S if paths else min(2 * self.recheck_s, SETTLE_TIME_S)
        if (paths or self.unsettled) and not await self._apply_changes(paths):
            await self._apply_scan()

    async def _apply_changes(self, paths: Collection[str]) -> bool:
        """Ingest changed files. Returns False if a scan has to find out what has changed."""
        prefix = f"{self.scanner.root}/"
        if not all(path.startswith(prefix) for path in paths):
            return False
        names = {path.removeprefix(prefix) for path in paths} | self.unsettled
        live_names = self.item_states.live & names
        seen = await asyncio.to_thread(self.scanner.inspect, names, self.last_scan, live_names)
        # An emptied file may be deleted or about to be written: the periodic scan decides.
        if seen is None:
            return False
        self.unsettled -= names - seen.files.keys()
        await self._ingest(seen)
        for name in names:
            self.problems.pop(name, None)
        await self._store_status(self.problems | seen.problems)
        return True

    async def _apply_scan(self) -> None:
        folder_scan = await asyncio.to_thread(self.scanner.scan)
        missing = self.item_states.live - folder_scan.files.keys()
        deleted = set(filter(folder_scan.is_deleted, missing))
        # Before any withdrawal: an unmounted share looks like a folder whose files were deleted.
        unmounted = self._find_unmounted(folder_scan, deleted) if deleted else set()
        self.unsettled &= folder_scan.files.keys()
        for name in self.early_reads.keys() - folder_scan.files.keys():
            del self.early_reads[name]
        # Most scans find what the last one did, and looking at each file costs most of a scan.
        found = folder_scan.files, folder_scan.folders
        if found != (self.ingested_files, self.last_scan.folders):
            has_changes = await self._ingest(folder_scan)
            self.ingested_files = {} if has_changes or self.unsettled else folder_scan.files
        await self.item_states.withdraw(
            name
            for name in sorted(deleted - unmounted)
            # An editor may truncate a file before it writes it again.
            if name not in folder_scan.empty_files
            or self._is_settled(name, folder_scan.empty_files[name])
        )
        folder_scan.problems |= dict.fromkeys(unmounted, "its file system is no longer mounted")
        self.last_scan = folder_scan
        await self._store_status(folder_scan.problems)

    async def _ingest(self, folder_scan: FolderScan) -> bool:
        """Publish new and changed files, and store the device of those that have moved to
        another. Returns whether there were any.
        """
        files = folder_scan.files
        due = sorted(name for name in files if self._is_due(name, files[name], folder_scan))
        await run_in_batches(
            (self._read_change(name, files[name], folder_scan) for name in due),
            MAX_CONCURRENT_READS,
            self._publish,
        )
        return bool(due)

    async def _publish(self, changes: list[ItemChange | None]) -> None:
        await self.item_states.publish([change for change in changes if change is not None])

    def _is_due(self, name: str, stamp: FileStamp, folder_scan: FolderScan) -> bool:
        item = self.item_states.items.get(name, {})
        if item.get("live") and item.get("stamp") == list(stamp):
            return bool(item.get("device") != folder_scan.resolve_device(name))
        if self._is_settled(name, stamp):
            return True
        self.unsettled.add(name)
        early_read = self.early_reads.get(name)
        # One early read in SETTLE_TIME_S: a file that keeps changing is not ingested each time.
        return early_read is None or (
            early_read.stamp != stamp
            and self.clock().timestamp() - early_read.read_at > SETTLE_TIME_S
        )

    def _is_settled(self, name: str, stamp: FileStamp) -> bool:
        return (
            self.previous_stamps.get(name) == stamp
            or self.clock().timestamp() - stamp[1] / 1e9 > SETTLE_TIME_S
        )

    async def _read_change(
        self, name: str, stamp: FileStamp, folder_scan: FolderScan
    ) -> ItemChange | None:
        """Read a file. Returns None if nothing is to be stored yet."""
        path, item = self.scanner.root / name, self.item_states.items.get(name, {})
        item_fields: dict[str, Any] = {"device": folder_scan.resolve_device(name)}
        if item.get("live") and item.get("stamp") == list(stamp):
            return ItemChange(name, item | item_fields)
        is_settled = self._is_settled(name, stamp)
        try:
            file_bytes = await asyncio.to_thread(self._read_file, path, is_settled)
            # Emptied since the scan: an editor is about to write it.
            if file_bytes is None or file_bytes.payload == b"":
                return None
            if is_settled:
                # Without a stamp, which a change may share, an early read is repeated, also after
                # a crash.
                item_fields["stamp"] = list(stamp)
                self.early_reads.pop(name, None)
                self.unsettled.discard(name)
            else:
                self.early_reads[name] = EarlyRead(stamp, self.clock().timestamp())
            # Touched, copied back or restored: the same bytes are no new revision.
            if item.get("live") and item.get("sha256") == file_bytes.sha256:
                return ItemChange(name, item | item_fields) if is_settled else None
            return await self._build_change(name, path, file_bytes, item_fields)
        except (OSError, LimitExceeded) as error:
            self.unsettled.discard(name)
            folder_scan.problems[name] = (
                error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            )
            return None

    def _read_file(self, path: Path, is_settled: bool) -> FileBytes | None:
        """Read a file unless it is being written."""
        with open_file(path, self.allowed_roots) as file:
            if not is_settled and may_have_writer(file):
                return None
            return read_file(file, min(MAX_HELD_BYTES, self.max_bytes))

    async def _build_change(
        self, name: str, path: Path, file_bytes: FileBytes, item_fields: dict[str, Any]
    ) -> ItemChange:
        # The mark names the staging prefix, so it is chosen before the upload.
        mark = self.item_states.compute_next_mark(name)
        producer, sha256 = self.item_states.raw_producer, file_bytes.sha256
        if file_bytes.payload is None:
            blob = await self.blobs.put_stream(
                producer.get_staging_prefix(name, mark),
                _read_chunks(path, self.allowed_roots),
                limit=self.max_bytes,
            )
            content, sha256 = Content(storage_key=blob.key), blob.sha256
        else:
            content = await producer.stage_item(name, mark, file_bytes.payload)
        return ItemChange(
            name, {"sha256": sha256, **item_fields}, self._build_document(name, path, content), mark
        )

    def _find_unmounted(self, folder_scan: FolderScan, missing: Collection[str]) -> set[str]:
        """Return missing documents whose file system was unmounted: their files are not deleted."""
        # Device numbers may change with a restart: files that still exist map old numbers to new
        # ones.
        current_devices: dict[int, set[int]] = {}
        for name in folder_scan.files:
            current_devices.setdefault(
                self.item_states.items.get(name, {}).get("device", -1), set()
            ).add(folder_scan.resolve_device(name))
        return {
            name
            for name in missing
            if (device := self.item_states.items[name].get("device")) is not None
            and folder_scan.resolve_device(name)
            not in current_devices.get(device, set()) | {device}
        }

    async def _store_status(self, problems: dict[str, str]) -> None:
        self.problems = problems
        await self.item_states.store_status(
            "watching", problems, n_skipped=len(self.last_scan.skipped)
        )

    def _build_document(self, name: str, path: Path, content: Content) -> DocumentReceived:
        spec, uri = self.item_states.source.spec, path.as_uri()
        return DocumentReceived(
            tenant=spec.tenant,
            external_id=name,
            content=content,
            filename=path.name,
            source_uri=uri if len(uri) <= MAX_URI_CHARS else None,
            collection=spec.collection,
            tags=spec.tags,
        )


async def _read_chunks(path: Path, allowed_roots: Sequence[Path] | None) -> AsyncIterator[bytes]:
    file = await asyncio.to_thread(open_file, path, allowed_roots)
    with file:
        while chunk := await asyncio.to_thread(file.read, CHUNK_BYTES):
            yield chunk
