"""Ingest with the local models against the bare engines: parse and embed, same threads, same batches, no OCR.

python -m benchmarks.ingest_ratio PATH/TO/cuad --passages 1000 --pdfs 5
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from anabranch.composition.overrides import Overrides
from benchmarks.harness import Stopwatch, pipeline, report
from engines.chunk import chunker_for
from engines.embed.e5 import E5Embedder
from engines.ocr.rapidocr import RapidOcr
from engines.parse import LocalParser
from processors.embed import embedded_text
from schemas.events import Content, DocumentReceived
from schemas.generations import ChunkConfig
from schemas.ids import content_id
from schemas.ports.engines import File
from schemas.records import Record
from streams.codec import Codec
from streams.submission import submission

BATCH = 32


def documents(folder: Path, passages: int, pdfs: int) -> list[tuple[str, str, str | None, bytes]]:
    """Name, media type, title and bytes."""
    with (folder / "corpus.jsonl").open() as lines:
        rows = [json.loads(line) for _, line in zip(range(passages), lines, strict=False)]
    texts = [(f"{row['id']}.txt", "text/plain", row["title"], row["text"].encode()) for row in rows]
    files = sorted((folder / "documents").glob("*.pdf"))[:pdfs]
    return texts + [(path.name, "application/pdf", None, path.read_bytes()) for path in files]


async def bare(found: Sequence[tuple[str, str, str | None, bytes]], embedder: E5Embedder, folder: Path) -> tuple[float, int]:
    """Seconds of the engines alone, one document after the other, chunks embedded in batches."""
    ocr = RapidOcr()
    texts: list[str] = []
    async with LocalParser(ocr, workers=min(2, os.cpu_count() or 1)) as parser:
        await parser.warm()
        with Stopwatch() as watch:
            for number, (name, media_type, title, data) in enumerate(found):
                path = folder / f"{number}"
                path.write_bytes(data)
                file = File(path, name, media_type, len(data), title)
                plan = await parser.plan(file)
                transcript = parser.assemble(file, plan, [await parser.parse(file, plan, part) for part in plan.parts])
                parents = chunker_for(ChunkConfig()).chunk(content_id("bench", number), title or transcript.title, transcript)
                texts += [embedded_text(child) for parent in parents for child in parent.children]
            for start in range(0, len(texts), BATCH):
                await embedder.embed(texts[start : start + BATCH])
    await ocr.aclose()
    return watch.seconds, len(texts)


async def records(found: Sequence[tuple[str, str, str | None, bytes]], blobs: Any) -> list[Record]:
    codec, now = Codec(), datetime.now(UTC)
    made = []
    for name, media_type, title, data in found:
        if len(data) < 100_000:
            content = Content(base64=base64.b64encode(data).decode())
        else:
            content = Content(storage_key=(await blobs.put(f"uploads/default/{name}", data)).key)
        event = DocumentReceived(external_id=name, filename=name, media_type=media_type, title=title, content=content)
        made.append(await submission(event, name, source="benchmark", time=now, codec=codec))
    return made


async def measure(folder: Path, passages: int, pdfs: int) -> dict[str, Any]:
    found = documents(folder, passages, pdfs)
    with tempfile.TemporaryDirectory() as scratch:
        embedder = E5Embedder(Path(scratch), threads=os.cpu_count() or 1)
        await embedder.embed(["warm"])
        engines, chunks = await bare(found, embedder, Path(scratch))
        async with pipeline(Overrides(embedder=embedder)) as bench:
            made = await records(found, bench.worker.storage.blobs)
            with Stopwatch() as whole:
                await bench.push(made)
                await bench.searchable(len(found))
            indexed = await bench.worker.storage.pool.fetchval("select count(*) from child_chunks")
        embedder.close()
    return {
        "benchmark": "ingest_ratio", "documents": len(found), "chunks": chunks, "chunks_indexed": indexed, "engines_seconds": engines, "ingest_seconds": whole.seconds,
        "ratio": whole.seconds / engines,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--passages", type=int, default=1000)
    parser.add_argument("--pdfs", type=int, default=5)
    given = parser.parse_args()
    report(asyncio.run(measure(given.folder, given.passages, given.pdfs)))


if __name__ == "__main__":
    main()
