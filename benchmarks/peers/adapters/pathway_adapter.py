"""Pathway: files, chunks and embeddings into a snapshot table, with persistence in a folder."""

# mypy: disable-error-code="import-not-found, untyped-decorator, misc"
from __future__ import annotations

from pathlib import PurePath
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pathway as pw
import psycopg
from numpy.typing import NDArray

from benchmarks.peers import workload

TABLE = f"""
create extension if not exists vector;
create table if not exists pathway_chunks (
  doc text, chunk_no bigint, txt text, embedding vector({workload.DIMENSION}),
  primary key (doc, chunk_no)
)
"""


class Embedder(pw.UDF):
    def __wrapped__(self, text: str) -> NDArray[Any]:
        return workload.embed([text])[0].astype(np.float64)


@pw.udf(deterministic=True)
def split(data: str, metadata: pw.Json) -> list[tuple[str, int, str]]:
    name = PurePath(metadata["path"].as_str()).name
    return [(name, ordinal, chunk) for ordinal, chunk in enumerate(workload.split_text(data))]


def index(arguments: workload.AdapterArguments) -> None:
    with psycopg.connect(arguments.dsn, autocommit=True) as connection:
        connection.execute(TABLE)
    files = pw.io.fs.read(
        str(arguments.docs),
        format="plaintext_by_file",
        mode="streaming" if arguments.is_live else "static",
        with_metadata=True,
        autocommit_duration_ms=100,
        name="files",
    )
    chunks = files.select(chunk=split(pw.this.data, pw.this._metadata)).flatten(pw.this.chunk)
    rows = chunks.select(
        doc=pw.this.chunk[0], chunk_no=pw.this.chunk[1], txt=pw.this.chunk[2]
    ).with_columns(embedding=Embedder()(pw.this.txt))
    url = urlsplit(arguments.dsn)
    parameters = parse_qs(url.query)
    pw.io.postgres.write(
        rows,
        {
            "host": parameters["host"][0],
            "port": parameters["port"][0],
            "user": url.username,
            "dbname": url.path[1:],
            "sslmode": "disable",
        },
        "pathway_chunks",
        output_table_type="snapshot",
        primary_key=[rows.doc, rows.chunk_no],
        name="rows",
    )
    pw.run(
        persistence_config=pw.persistence.Config(
            pw.persistence.Backend.filesystem(str(arguments.state)),
            persistence_mode=pw.PersistenceMode.PERSISTING,
            snapshot_interval_ms=500,
        ),
        monitoring_level=pw.MonitoringLevel.NONE,
    )


if __name__ == "__main__":
    index(workload.parse_adapter_arguments())
