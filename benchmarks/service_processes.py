"""Workers and an API with null engines, each in a process of its own."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from anabranch.__main__ import GC_THRESHOLDS
from anabranch.composition.worker import prepare_worker
from anabranch.config.overrides import Overrides
from anabranch.config.settings import Settings
from anabranch.process.shutdown import run_until_stopped
from anabranch.process.worker_process import lower_priority
from benchmarks.harness import serve_api, silence_logs
from benchmarks.processes import measure_tree_cpu

MakeOverrides = Callable[[], Overrides]
Serve = Callable[[Settings, str, Overrides, Connection], Coroutine[Any, Any, None]]
START_TIMEOUT_S = 300
STOP_TIMEOUT_S = 30


@dataclass(frozen=True)
class ServiceProcess:
    pid: int
    ready: Any
    """The message with which it reported that it is ready."""

    def measure_cpu(self) -> float:
        return measure_tree_cpu(self.pid)


@asynccontextmanager
async def run_service(
    serve: Serve, settings: Settings, dsn: str, make_overrides: MakeOverrides
) -> AsyncIterator[ServiceProcess]:
    """Run `serve` in another process until the context is left, and wait until it is ready."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=_run, args=(serve, settings, dsn, make_overrides, theirs), daemon=True
    )
    process.start()
    # Otherwise a process that ends before it is ready would not end the pipe.
    theirs.close()
    assert process.pid is not None
    try:
        if not await asyncio.to_thread(ours.poll, START_TIMEOUT_S):
            raise TimeoutError(f"{serve.__name__} was not ready within {START_TIMEOUT_S} s.")
        yield ServiceProcess(process.pid, ours.recv())
        if not process.is_alive():
            raise RuntimeError(f"{serve.__name__} ended with code {process.exitcode}.")
    finally:
        process.terminate()
        await asyncio.to_thread(process.join, STOP_TIMEOUT_S)
        process.kill()


def _run(
    serve: Serve, settings: Settings, dsn: str, make_overrides: MakeOverrides, ready: Connection
) -> None:
    silence_logs()
    # As the program does.
    gc.set_threshold(*GC_THRESHOLDS)
    asyncio.run(run_until_stopped(serve(settings, dsn, make_overrides(), ready)))


async def run_worker(settings: Settings, dsn: str, overrides: Overrides, ready: Connection) -> None:
    # In a session of its own, as `anabranch up` starts it.
    os.setsid()
    lower_priority(settings.worker.niceness)
    async with prepare_worker(settings, dsn, overrides=overrides) as worker:
        ready.send(worker.generation)
        await worker.run()


async def run_api(settings: Settings, dsn: str, overrides: Overrides, ready: Connection) -> None:
    """Report the URL and the headers of an authorized request."""
    async with serve_api(settings, dsn, overrides) as client:
        ready.send((str(client.base_url), {"Authorization": client.headers["Authorization"]}))
        await asyncio.Event().wait()
