"""Documents a second through each way in, beside records that are appended to `raw` in batches.

A worker and an API run as processes of their own; the client, a server of files and `anabranch
ingest` share the machine with them, so the CPU of each is reported beside the rate. Null engines,
except the chunker.

`bare_upload` is the least that uploads can cost: the same client sends the same forms to a server
that only writes them to files. `reachable_of_raw` is the rate of `raw` that would be left if an
upload cost no more than that, and the stages as much as for records in `raw`.

python -m benchmarks.ways_in --documents 1000
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import uvicorn
from starlette.types import Receive, Scope, Send

from anabranch.composition.storage import prepare_storage
from anabranch.config.overrides import Overrides
from anabranch.config.settings import Settings
from benchmarks.harness import (
    Timer,
    make_synthetic_texts,
    make_text_records,
    run_benchmark,
    silence_logs,
    start_postgres,
)
from benchmarks.null_engines import FlatEmbedder, NullExtractor, NullParser
from benchmarks.processes import measure_tree_cpu
from benchmarks.service_processes import ServiceProcess, run_api, run_service, run_worker
from schemas.events import SourceAdded, build_root_event
from schemas.sources import FolderSource, SourceSpec
from schemas.topics import CONTROL
from services.storage import Storage

CLIENTS = 16
APPEND_BATCH = 500
COUNT_VISIBLE = "select count(*) from visible"


def make_overrides() -> Overrides:
    return Overrides(parser=NullParser(), embedder=FlatEmbedder(), extractor=NullExtractor())


@dataclass(frozen=True)
class Services:
    storage: Storage
    api: ServiceProcess
    worker: ServiceProcess
    postmaster: int
    folder: Path
    files_url: str

    def read_cpu_s(self) -> dict[str, float]:
        return {
            "client": read_client_cpu_s(),
            "api": self.api.measure_cpu(),
            "worker": self.worker.measure_cpu(),
            "postgres": measure_tree_cpu(self.postmaster),
        }


def read_client_cpu_s() -> float:
    """Return the CPU of this process and of those that it has started and that have ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


async def append_to_raw(services: Services, texts: list[str]) -> None:
    records = await make_text_records(texts, prefix="raw")
    for start in range(0, len(records), APPEND_BATCH):
        await services.storage.log.append(records[start : start + APPEND_BATCH])


async def watch_folder(services: Services, texts: list[str]) -> None:
    path = write_files(services.folder / "watched", texts)
    spec = SourceSpec(
        name="library", connector=FolderSource(path=str(path), every_s=2.0), tenant="default"
    )
    storage = services.storage
    event = build_root_event(
        SourceAdded(source=spec, epoch=1), uuid4(), "anabranch/sources", lambda: datetime.now(UTC)
    )
    await storage.log.append([await storage.codec.encode(event, CONTROL, spec.name)])


async def ingest_recursively(services: Services, texts: list[str]) -> None:
    path = write_files(services.folder / "ingested", texts)
    url, headers = services.api.ready
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "anabranch", "ingest", str(path), "--recursive"),
        *("--server", url, "--json"),
        env=os.environ | {"ANABRANCH_TOKEN": headers["Authorization"].removeprefix("Bearer ")},
        stdout=asyncio.subprocess.DEVNULL,
    )
    if await process.wait():
        raise RuntimeError(f"anabranch ingest ended with code {process.returncode}.")


async def upload(services: Services, texts: list[str]) -> None:
    await post_documents(services.api, make_forms(texts))


def make_forms(texts: list[str]) -> list[dict[str, Any]]:
    return [
        {
            "files": {"file": (f"upload-{number}.md", text.encode())},
            "data": {"external_id": f"upload-{number}"},
        }
        for number, text in enumerate(texts)
    ]


async def fetch_urls(services: Services, texts: list[str]) -> None:
    write_files(services.folder / "served", texts)
    await post_documents(
        services.api,
        [
            {"json": {"url": f"{services.files_url}/doc-{number}.md"}}
            for number in range(len(texts))
        ],
    )


async def post_documents(api: ServiceProcess, bodies: list[dict[str, Any]]) -> None:
    url, headers = api.ready
    remaining = iter(bodies)
    async with httpx2.AsyncClient(base_url=url, headers=headers, timeout=60) as client:

        async def post() -> None:
            for body in remaining:
                (await client.post("/v1/ingest", **body)).raise_for_status()

        await asyncio.gather(*(post() for _ in range(CLIENTS)))


WAYS: tuple[Callable[[Services, list[str]], Awaitable[None]], ...] = (
    append_to_raw,
    watch_folder,
    ingest_recursively,
    upload,
    fetch_urls,
)


def write_files(folder: Path, texts: list[str]) -> Path:
    folder.mkdir(exist_ok=True)
    for number, text in enumerate(texts):
        path = folder / f"doc-{number}.md"
        path.write_text(text)
        # Old enough to be read at once.
        os.utime(path, (1_760_000_000, 1_760_000_000))
    return folder


async def measure_way(
    way: Callable[[Services, list[str]], Awaitable[None]], services: Services, texts: list[str]
) -> dict[str, float]:
    pool = services.storage.pool
    expected = await pool.fetchval(COUNT_VISIBLE) + len(texts)
    before = services.read_cpu_s()
    with Timer() as timer:
        await way(services, texts)
        while await pool.fetchval(COUNT_VISIBLE) < expected:
            await asyncio.sleep(0.05)
    after = services.read_cpu_s()
    return {"documents_per_second": len(texts) / timer.seconds} | {
        f"{name}_cpu_ms": 1000 * (after[name] - before[name]) / len(texts) for name in before
    }


async def run_bare_server(
    settings: Settings, dsn: str, overrides: Overrides, ready: Connection
) -> None:
    """Write each request's body to a file, with the HTTP server of the API and nothing else."""
    folder = settings.data_dir / "bare"
    folder.mkdir()
    names = count()

    async def store(_: Scope, receive: Receive, send: Send) -> None:
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body", False):
                break
        (folder / str(next(names))).write_bytes(body)
        await send({"type": "http.response.start", "status": 202, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    config = uvicorn.Config(store, port=0, log_config=None, access_log=False, lifespan="off")
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    ready.send((f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}", {}))
    await task


async def measure_bare_upload(
    settings: Settings, texts: list[str], raw: dict[str, float]
) -> dict[str, float]:
    async with run_service(run_bare_server, settings, "", make_overrides) as server:
        forms = make_forms(texts)
        client_cpu_s, server_cpu_s = read_client_cpu_s(), server.measure_cpu()
        with Timer() as timer:
            await post_documents(server, forms)
        cpu_ms = {
            "client_cpu_ms": 1000 * (read_client_cpu_s() - client_cpu_s) / len(texts),
            "server_cpu_ms": 1000 * (server.measure_cpu() - server_cpu_s) / len(texts),
        }
    raw_cpu_ms = sum(ms for name, ms in raw.items() if name.endswith("_cpu_ms"))
    return {
        "documents_per_second": len(texts) / timer.seconds,
        **cpu_ms,
        "reachable_of_raw": raw_cpu_ms / (raw_cpu_ms + sum(cpu_ms.values())),
    }


@asynccontextmanager
async def serve_files(folder: Path) -> AsyncIterator[str]:
    """Serve the folder over HTTP from a process of its own."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-u", "-m", "http.server", "0", "--bind", "127.0.0.1"),
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdout is not None
    # "Serving HTTP on 127.0.0.1 port 43211 (http://127.0.0.1:43211/) ..."
    port = (await process.stdout.readline()).split(b" port ")[1].split()[0].decode()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        await process.wait()


async def measure(documents: int, words: int) -> dict[str, Any]:
    silence_logs()
    texts = make_synthetic_texts((documents + 1) * len(WAYS), words)
    async with AsyncExitStack() as stack:
        folder, server = await stack.enter_async_context(start_postgres())
        files = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="anabranch-bench-files-"))
        )
        (files / "served").mkdir()
        files_url = await stack.enter_async_context(serve_files(files / "served"))
        settings = Settings(
            data_dir=folder,
            ingest={"folders": [str(files)], "url_allow": [files_url.removeprefix("http://")]},
        )
        storage = await stack.enter_async_context(
            prepare_storage(settings, server.dsn, pool_size=4, name="benchmark")
        )
        services = Services(
            storage=storage,
            worker=await stack.enter_async_context(
                run_service(run_worker, settings, server.dsn, make_overrides)
            ),
            api=await stack.enter_async_context(
                run_service(run_api, settings, server.dsn, make_overrides)
            ),
            postmaster=int((server.data / "postmaster.pid").read_text().splitlines()[0]),
            folder=files,
            files_url=files_url,
        )
        figures: dict[str, dict[str, float]] = {}
        for number, way in enumerate(WAYS):
            share = texts[number * (documents + 1) :][: documents + 1]
            figures[way.__name__] = await measure_way(way, services, share)
        figures["bare_upload"] = await measure_bare_upload(
            settings, texts[:documents], figures[append_to_raw.__name__]
        )
    return {"benchmark": "ways_in", "documents": documents, "cores": os.cpu_count(), **figures}


if __name__ == "__main__":
    run_benchmark(measure, __doc__, documents=1000, words=150)
