"""Content of the events that a source publishes."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from engines.blobs import open_blobs
from schemas.sources import EmittedState, FolderSource, SourceSpec
from schemas.topics import Position, StoredRecord
from streams.codec import Codec
from streams.sources.emitter import SourceDocument
from streams.sources.raw_producer import RawProducer

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SPEC = SourceSpec(name="crm", connector=FolderSource(path="/absent"))
STATE = EmittedState("notes", 1, 7, 0, "digest", "note-1", True, (), True)


@pytest.mark.parametrize(("text", "is_inline"), [("x" * 10, True), ("é" * 10, False)])
async def test_row_text_above_the_configured_limit_is_staged(text: str, is_inline: bool) -> None:
    blobs = open_blobs("memory:///")
    producer = RawProducer(SPEC, Codec(), blobs, lambda: NOW, inline_bytes=10)
    [record] = await producer.build_document_records(STATE, SourceDocument("note-1", text))
    event = await Codec().decode(StoredRecord(record, Position("raw", 0, 0), NOW))
    content = event.data.content
    if is_inline:
        assert content.text == text
    else:
        assert await blobs.get(content.storage_key) == text.encode()


async def test_file_content_is_never_inline() -> None:
    """Topic `raw` is not encrypted, and an erasure may not find every record of it."""
    blobs = open_blobs("memory:///")
    producer = RawProducer(SPEC, Codec(), blobs, lambda: NOW)
    content = await producer.stage_item("a.md", (1, 7), b"Herons")
    assert content.storage_key is not None and content.text is content.base64 is None
    assert await blobs.get(content.storage_key) == b"Herons"
    assert await producer.stage_item("a.md", (1, 7), b"Herons") == content
