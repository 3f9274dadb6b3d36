"""Ingestion with the local models compared to the engines alone.

Both use the same threads and the same batches, without OCR.

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
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from anabranch.config.overrides import Overrides
from benchmarks.harness import Timer, print_report, run_pipeline
from engines.chunk import create_chunker
from engines.embed.e5 import E5Embedder
from engines.ocr.rapidocr import RapidOcr
from engines.parse import LocalParser
from schemas.events import Content, DocumentReceived
from schemas.generations import ChunkConfig
from schemas.ids import content_id
from schemas.ports.engines import LocalFile
from schemas.topics import Record
from schemas.values import format_embedding_text
from streams.codec import Codec
from streams.publisher import build_raw_record

BATCH = 32


def load_documents(
    folder: Path, passages: int, pdfs: int
) -> list[tuple[str, str, str | None, bytes]]:
    """Return name, media type, title and bytes of each document."""
    with (folder / "corpus.jsonl").open() as lines:
        rows = [json.loads(line) for _, line in zip(range(passages), lines, strict=False)]
    texts = [(f"{row['id']}.txt", "text/plain", row["title"], row["text"].encode()) for row in rows]
    files = sorted((folder / "documents").glob("*.pdf"))[:pdfs]
    return texts + [(path.name, "application/pdf", None, path.read_bytes()) for path in files]


async def time_engines(
    input_files: Sequence[tuple[str, str, str | None, bytes]], embedder: E5Embedder, folder: Path
) -> tuple[float, int]:
    """Return the seconds of the engines alone, and the number of chunks.

    Documents are processed one after the other, chunks in batches.
    """
    ocr = RapidOcr()
    texts: list[str] = []
    async with aclosing(LocalParser(ocr, workers=min(2, os.cpu_count() or 1))) as parser:
        await parser.warm()
        with Timer() as timer:
            for number, (name, media_type, title, data) in enumerate(input_files):
                path = folder / f"{number}"
                path.write_bytes(data)
                file = LocalFile(path, name, media_type, len(data), title)
                plan = await parser.plan(file)
                transcript = parser.assemble(
                    file, plan, [await parser.parse(file, plan, part) for part in plan.parts]
                )
                parents = create_chunker(ChunkConfig()).chunk(
                    content_id("bench", number), title or transcript.title, transcript
                )
                texts += [
                    format_embedding_text(child.prefix, child.text)
                    for parent in parents
                    for child in parent.children
                ]
            for start in range(0, len(texts), BATCH):
                await embedder.embed(texts[start : start + BATCH])
    await ocr.aclose()
    return timer.seconds, len(texts)


async def make_records(
    input_files: Sequence[tuple[str, str, str | None, bytes]], blobs: Any
) -> list[Record]:
    codec, now = Codec(), datetime.now(UTC)
    new_records = []
    for name, media_type, title, data in input_files:
        if len(data) < 100_000:
            content = Content(base64=base64.b64encode(data).decode())
        else:
            content = Content(storage_key=(await blobs.put(f"uploads/default/{name}", data)).key)
        event = DocumentReceived(
            external_id=name, filename=name, media_type=media_type, title=title, content=content
        )
        new_records.append(
            await build_raw_record(event, name, source="benchmark", time=now, codec=codec)
        )
    return new_records


async def measure(folder: Path, passages: int, pdfs: int) -> dict[str, Any]:
    input_files = load_documents(folder, passages, pdfs)
    with tempfile.TemporaryDirectory() as scratch:
        embedder = E5Embedder(Path(scratch), threads=os.cpu_count() or 1)
        await embedder.embed(["warm"])
        engines_s, chunks = await time_engines(input_files, embedder, Path(scratch))
        async with run_pipeline(Overrides(embedder=embedder)) as bench:
            new_records = await make_records(input_files, bench.worker.storage.blobs)
            with Timer() as timer:
                await bench.push(new_records)
                await bench.wait_until_searchable(len(input_files))
            n_indexed = await bench.worker.storage.pool.fetchval(
                "select count(*) from child_chunks"
            )
        embedder.close()
    return {
        "benchmark": "ingest_ratio",
        "documents": len(input_files),
        "chunks": chunks,
        "chunks_indexed": n_indexed,
        "engines_seconds": engines_s,
        "ingest_seconds": timer.seconds,
        "ratio": timer.seconds / engines_s,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--passages", type=int, default=1000)
    parser.add_argument("--pdfs", type=int, default=5)
    arguments = parser.parse_args()
    print_report(asyncio.run(measure(arguments.folder, arguments.passages, arguments.pdfs)))


if __name__ == "__main__":
    main()
