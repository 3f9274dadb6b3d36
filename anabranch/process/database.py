"""The database to work with: the one that the settings name, else the embedded one in the data folder."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import structlog

from anabranch.process.data_folder import make_folder
from anabranch.settings import Settings
from schemas.errors import DatabaseUnavailable, NotFound
from sql.embedded import THROWAWAY, EmbeddedPostgres

log = structlog.get_logger(__name__)
FOLDER = "postgres"
KEEP_S = 1.0


@asynccontextmanager
async def database(settings: Settings, *, throwaway: bool = False, shared: bool = False) -> AsyncIterator[str]:
    """Its address. The embedded server is stopped at the end, also one that a killed holder of the data folder left running; a `shared` one
    only if it was started here. Of a throw-away one nothing is left."""
    if settings.database.url:
        yield settings.database.url.get_secret_value()
        return
    make_folder(settings.data_dir)
    server = EmbeddedPostgres(embedded_root(settings), settings=THROWAWAY if throwaway else None, tcp=settings.database.tcp)
    left_running = shared and server.running
    await asyncio.to_thread(server.start, shared=shared)
    keeping = asyncio.create_task(_keep(server))
    try:
        yield server.dsn
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        if not left_running:
            await asyncio.to_thread(server.stop)
        if throwaway:
            shutil.rmtree(server.root, ignore_errors=True)


async def _keep(server: EmbeddedPostgres) -> None:
    """Start it again, at the same address, should it be killed."""
    while True:
        await asyncio.sleep(KEEP_S)
        if server.running:
            continue
        log.error("the embedded Postgres is gone: starting it again")
        try:
            await asyncio.to_thread(server.start)
        except DatabaseUnavailable as error:
            log.error("it does not start", detail=error.detail)


def without_password(dsn: str) -> str:
    parts = urlsplit(dsn)
    user, at, host = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{user.partition(':')[0]}{at}{host}"))


def embedded_root(settings: Settings) -> Path:
    return settings.data_dir.resolve() / FOLDER


def check_begun(settings: Settings) -> None:
    """Raises NotFound where the database would have to be made first: whoever only reads makes none in a folder that was mistyped."""
    if settings.database.url is None and not embedded_root(settings).exists():
        raise NotFound(
            f"there is no data folder of ours at {settings.data_dir.resolve()}",
            code="NO_DATA_FOLDER",
            remedy="Correct --data, name the server that runs elsewhere (--server), or begin one there with `anabranch up` or `anabranch ingest`.",
        )
