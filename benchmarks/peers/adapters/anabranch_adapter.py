"""Anabranch in one process: folder source, log table, all stages, lexical index, null engines."""

from __future__ import annotations

import asyncio
import gc
import hashlib
from collections.abc import Sequence
from uuid import UUID, uuid4

import numpy as np

from anabranch.__main__ import GC_THRESHOLDS
from anabranch.composition.worker import Worker, prepare_worker
from anabranch.config.overrides import Overrides
from anabranch.config.settings import IngestSettings, Settings
from benchmarks.harness import silence_logs
from benchmarks.null_engines import NullExtractor, NullParser
from benchmarks.peers import workload
from schemas.events import SourceAdded, build_root_event
from schemas.ids import content_id
from schemas.ports.engines import QueryEmbedding, TextEmbedding
from schemas.sources import FolderSource, SourceSpec
from schemas.timestamps import utc_now
from schemas.topics import CONTROL
from schemas.values import ChildChunk, ParentChunk, Span, Transcript
from services.sources.service import CE_SOURCE

VIEW = """
create or replace view public.peer_chunks as
select
  d.external_id as doc, c.ordinal as chunk_no, c.text as txt,
  e.embedding::vector as embedding, c.xmin as xmin
from anabranch.visible v
join anabranch.documents d on d.id = v.document_id
join anabranch.child_chunks c using (generation, document_id, ord)
join anabranch.chunk_vectors e
  on (e.generation, e.document_id, e.ord, e.chunk_id) = (c.generation, c.document_id, c.ord, c.id)
"""
VISIBLE_HASHES = """
select d.external_id, r.content_sha256
from visible v
join documents d on d.id = v.document_id
join document_revisions r using (document_id, ord)
"""


class PeerEmbedder:
    fingerprint, model, dimension, state_dimension = "peer", "peer", workload.DIMENSION, 0

    async def embed(self, texts: Sequence[str]) -> list[TextEmbedding]:
        vectors = workload.embed(list(texts))
        return [TextEmbedding(vector.astype(np.float16)) for vector in vectors]

    async def embed_query(self, text: str) -> QueryEmbedding:
        return QueryEmbedding(workload.compute_vector(text))


class PeerChunker:
    fingerprint = "peer"

    def chunk(
        self, document_id: UUID, title: str | None, transcript: Transcript
    ) -> list[ParentChunk]:
        text, position = transcript.markdown, 0
        children: list[ChildChunk] = []
        for ordinal, piece in enumerate(workload.split_text(text)):
            start = text.index(piece, position)
            position, end = start + 1, start + len(piece)
            children.append(
                ChildChunk(
                    id=content_id("chunk", document_id, piece, ordinal),
                    ordinal=ordinal,
                    text=piece,
                    char_start=start,
                    char_end=end,
                    spans=[Span(char_start=start, char_end=end)],
                    tokens=workload.WINDOW_WORDS,
                )
            )
        return [
            ParentChunk(
                id=content_id("parent", document_id, text),
                ordinal=0,
                text=text,
                char_start=0,
                char_end=len(text),
                tokens=workload.WINDOW_WORDS * len(children),
                children=children,
            )
        ]


async def index(arguments: workload.AdapterArguments) -> None:
    """Run a worker until the visible revisions equal the files; in mode `live`, forever."""
    silence_logs()
    # As the program does.
    gc.set_threshold(*GC_THRESHOLDS)
    overrides = Overrides(
        parser=NullParser(),
        chunker=PeerChunker(),
        embedder=PeerEmbedder(),
        extractor=NullExtractor(),
    )
    allowed = IngestSettings(folders=(str(arguments.docs),))
    settings = Settings(data_dir=arguments.state, ingest=allowed)
    async with prepare_worker(settings, arguments.dsn, overrides=overrides) as worker:
        worker_task = asyncio.create_task(worker.run())
        if not await worker.storage.pool.fetchval("select count(*) from sources"):
            await add_source(worker, arguments)
        await worker.storage.pool.execute(VIEW)
        if not arguments.is_live:
            waiting = asyncio.create_task(wait_until_current(worker, arguments))
            # An error of the worker ends the program, too.
            await asyncio.wait([worker_task, waiting], return_when=asyncio.FIRST_COMPLETED)
            if waiting.done():
                waiting.result()
                worker_task.cancel()
                await asyncio.wait([worker_task])
                return
        await worker_task


async def add_source(worker: Worker, arguments: workload.AdapterArguments) -> None:
    every_s = 0.05 if arguments.is_live else 0.2
    folder = FolderSource(path=str(arguments.docs), glob="*.md", every_s=every_s)
    source = SourceAdded(source=SourceSpec(name="peer", connector=folder))
    event = build_root_event(source, uuid4(), CE_SOURCE, utc_now)
    storage = worker.storage
    await storage.log.append([await storage.codec.encode(event, CONTROL, "peer")])


async def wait_until_current(worker: Worker, arguments: workload.AdapterArguments) -> None:
    files = workload.list_files(arguments.docs)
    expected = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    pool = worker.storage.pool
    while (
        await pool.fetchval("select count(*) from visible") != len(expected)
        or dict(map(tuple, await pool.fetch(VISIBLE_HASHES))) != expected
    ):
        await asyncio.sleep(0.03)


if __name__ == "__main__":
    asyncio.run(index(workload.parse_adapter_arguments()))
