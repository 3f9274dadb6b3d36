"""CocoIndex: files, chunks and memoized embeddings into a Postgres table target."""

# mypy: disable-error-code="import-not-found, untyped-decorator, no-any-return"
from __future__ import annotations

import os
import pathlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated, Any

import asyncpg
import numpy as np
from numpy.typing import NDArray

from benchmarks.peers import workload

ARGUMENTS = workload.parse_adapter_arguments()
# Read when the package is imported.
os.environ["COCOINDEX_DB"] = str(ARGUMENTS.state / "coco.db")

import cocoindex as coco  # noqa: E402
from cocoindex.connectors import localfs, postgres  # noqa: E402
from cocoindex.resources.file import FileLike, PatternFilePathMatcher  # noqa: E402
from cocoindex.resources.schema import VectorSchema  # noqa: E402

DATABASE = coco.ContextKey[asyncpg.Pool]("database")
FOLDER = coco.ContextKey[pathlib.Path]("folder")


@coco.lifespan
async def provide_context(builder: coco.EnvironmentBuilder) -> AsyncIterator[None]:
    async with asyncpg.create_pool(ARGUMENTS.dsn) as pool:
        builder.provide(DATABASE, pool)
        builder.provide(FOLDER, ARGUMENTS.docs)
        yield


@dataclass
class Row:
    doc: str
    chunk_no: int
    txt: str
    embedding: Annotated[
        NDArray[Any], VectorSchema(dtype=np.dtype(np.float32), size=workload.DIMENSION)
    ]


@coco.fn.as_async(batching=True, max_batch_size=64)
def embed_batch(texts: list[str]) -> list[NDArray[Any]]:
    return workload.embed(texts)


# The shape of its own embedders: a memo outside, a batch inside.
@coco.fn(memo=True)
async def embed(text: str) -> NDArray[Any]:
    return await embed_batch(text)


@coco.fn
async def process_chunk(item: tuple[int, str], doc: str, table: postgres.TableTarget[Row]) -> None:
    ordinal, text = item
    table.declare_row(row=Row(doc, ordinal, text, await embed(text)))


@coco.fn(memo=True)
async def process_file(file: FileLike, table: postgres.TableTarget[Row]) -> None:
    chunks = workload.split_text(await file.read_text())
    await coco.map(process_chunk, list(enumerate(chunks)), file.file_path.path.name, table)


@coco.fn
async def build_index() -> None:
    schema = await postgres.TableSchema.from_class(Row, primary_key=["doc", "chunk_no"])
    table = await postgres.mount_table_target(
        DATABASE, table_name="coco_chunks", table_schema=schema
    )
    matcher = PatternFilePathMatcher(included_patterns=["**/*.md"])
    files = localfs.walk_dir(FOLDER, live=ARGUMENTS.is_live, path_matcher=matcher)
    await coco.mount_each(process_file, files.items(), table)


# Found by the package as a variable of the module.
app = coco.App(coco.AppConfig(name="PeerBenchmark"), build_index)

if __name__ == "__main__":
    app.update_blocking(live=ARGUMENTS.is_live)
