"""The database to work with: the one that the settings name, else the embedded one in the data folder."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from anabranch.settings import Settings
from sql.embedded import THROWAWAY, EmbeddedPostgres

FOLDER = "postgres"


@asynccontextmanager
async def database(settings: Settings, *, throwaway: bool = False, shared: bool = False) -> AsyncIterator[str]:
    """Its address. The embedded server is stopped at the end, also one that a killed holder of the data folder left running; a `shared` one
    only if it was started here. Of a throw-away one nothing is left."""
    if settings.database.url:
        yield settings.database.url.get_secret_value()
        return
    server = EmbeddedPostgres(embedded_root(settings), settings=THROWAWAY if throwaway else None)
    left_running = shared and server.running
    await asyncio.to_thread(server.start)
    try:
        yield server.dsn
    finally:
        if not left_running:
            await asyncio.to_thread(server.stop)
        if throwaway:
            shutil.rmtree(server.root, ignore_errors=True)


def embedded_root(settings: Settings) -> Path:
    return settings.data_dir.resolve() / FOLDER
