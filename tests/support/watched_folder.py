"""A folder source over a log and a store in memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from engines.blobs import open_blobs
from schemas.errors import DatabaseUnavailable
from schemas.sources import DeclaredSource, FolderSource, SourceSpec
from schemas.topics import Position, Record
from streams.codec import Codec
from streams.sources.folder_reader import FolderReader
from streams.sources.folder_scan import FolderScan, FolderScanner
from streams.sources.item_state import ItemStates
from streams.sources.raw_producer import RawProducer
from tests.fakes.event_feed import NoKnownDocuments
from tests.fakes.memory_log import MemoryLog
from tests.fakes.memory_source_store import MemorySourceStore
from tests.support.raw_documents import read_current_documents

NOW = datetime(2026, 1, 1, tzinfo=UTC)
OLD_MTIME_S = 1_760_000_000


class CountingLog(MemoryLog):
    appends = 0

    async def append(self, records: Sequence[Record]) -> list[Position]:
        self.appends += 1
        return await super().append(records)


class CountingStore(MemorySourceStore):
    recalls = 0
    is_unavailable = False

    async def set_notes(self, source: str, notes: Mapping[str, Mapping[str, Any]]) -> None:
        if self.is_unavailable and notes:
            raise DatabaseUnavailable("the process was killed")
        await super().set_notes(source, notes)

    async def fetch_notes(self, source: str) -> dict[str, dict[str, Any]]:
        self.recalls += 1
        return await super().fetch_notes(source)


class WatchedFolder:
    now = NOW

    def __init__(
        self,
        folder: Path,
        *,
        max_bytes: int = 1000,
        within: list[Path] | None = None,
        every_s: float = 2.0,
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.folder, self.log, self.store = folder, CountingLog(lambda: NOW), CountingStore()
        self.blobs = open_blobs("memory:///")
        source = DeclaredSource(
            SourceSpec(name="library", connector=FolderSource(path=str(folder), every_s=every_s)), 1
        )
        states = ItemStates(
            source,
            self.store,
            NoKnownDocuments(),
            RawProducer(source.spec, Codec(), self.blobs, lambda: self.now),
            self.log,
            lambda: self.now,
        )
        self.reader = FolderReader(
            source.spec.connector,  # type: ignore[arg-type]
            states,
            self.blobs,
            max_bytes,
            lambda: self.now,
            within,
        )

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

    async def read_texts(self) -> list[tuple[str, str]]:
        """Read name and text of every published document, in the order of the log."""
        documents = [(await Codec().decode(stored)).data async for stored in self.log.read("raw")]
        return [
            (data.external_id, (await self.blobs.get(data.content.storage_key)).decode())
            for data in documents
        ]

    def change_before_reads(
        self, monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]
    ) -> None:
        """Change the folder after it was scanned and before its files are read."""
        scan = FolderScanner.scan

        def scan_then_change(scanner: FolderScanner) -> FolderScan:
            folder_scan = scan(scanner)
            change()
            return folder_scan

        monkeypatch.setattr(FolderScanner, "scan", scan_then_change)
