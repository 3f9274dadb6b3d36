"""The database to work with: the one that the settings name, else the embedded one in the data folder."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import structlog

from anabranch.process.data_folder import make_folder
from anabranch.settings import Settings
from schemas.errors import DatabaseUnavailable, NotFound
from sql.embedded import THROWAWAY, EmbeddedPostgres
from sql.postgres_guardian import guarded

log = structlog.get_logger(__name__)
FOLDER = "postgres"
KEEP_S = 1.0


@asynccontextmanager
async def database(settings: Settings, *, throwaway: bool = False, shared: bool = False) -> AsyncIterator[str]:
    """Its address. The embedded server is stopped at the end, also one that a killed holder of the data folder left running; a `shared` one
    only if it was started here. A guardian stops it where this process cannot. Of a throw-away one nothing is left."""
    if settings.database.url:
        yield settings.database.url.get_secret_value()
        return
    make_folder(settings.data_dir)
    server = EmbeddedPostgres(embedded_root(settings), settings=THROWAWAY if throwaway else None, tcp=settings.database.tcp)
    # Leaving blocks instead of awaiting: a second Ctrl-C cancels what is awaited, and would leave Postgres running.
    with ExitStack() as stack:
        if throwaway:
            stack.callback(shutil.rmtree, server.root, ignore_errors=True)
        if not (shared and server.running):
            stack.enter_context(guarded(server))
        # Left before the guard: a start that was interrupted ends before the server is stopped, not after.
        starter = stack.enter_context(ThreadPoolExecutor(1))
        await asyncio.get_running_loop().run_in_executor(starter, partial(server.start, shared=shared))
        keeping = asyncio.create_task(_keep(server, starter))
        stack.callback(keeping.cancel)
        yield server.dsn


async def _keep(server: EmbeddedPostgres, starter: Executor) -> None:
    """Start it again, at the same address, should it be killed."""
    while True:
        await asyncio.sleep(KEEP_S)
        if server.running:
            continue
        log.error("the embedded Postgres is gone: starting it again")
        try:
            await asyncio.get_running_loop().run_in_executor(starter, server.start)
        except DatabaseUnavailable as error:
            log.error("it does not start", detail=error.detail)


def without_password(dsn: str) -> str:
    parts = urlsplit(dsn)
    user, at, host = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{user.partition(':')[0]}{at}{host}"))


def embedded_root(settings: Settings) -> Path:
    return settings.data_dir.resolve() / FOLDER


def check_begun(settings: Settings, elsewhere: str = "name the server that runs elsewhere (--server), ") -> None:
    """Raises NotFound where the database would have to be made first: whoever only reads makes none in a folder that was mistyped. `elsewhere` is another way out."""
    if settings.database.url is None and not embedded_root(settings).exists():
        raise NotFound(
            f"there is no data folder of ours at {settings.data_dir.resolve()}",
            code="NO_DATA_FOLDER",
            remedy=f"Correct --data, {elsewhere}or begin one there with `anabranch up` or `anabranch ingest`.",
        )
