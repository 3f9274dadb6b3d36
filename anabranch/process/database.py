"""Open the configured database, else the embedded one in the data folder."""

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

from anabranch.config.settings import Settings
from anabranch.process.data_folder import make_folder
from schemas.errors import DatabaseUnavailable, NotFound
from sql.embedded.guardian import guard_server
from sql.embedded.server import EPHEMERAL_SETTINGS, EmbeddedPostgres

log = structlog.get_logger(__name__)
POSTGRES_FOLDER = "postgres"
RESTART_CHECK_S = 1.0


@asynccontextmanager
async def open_database(
    settings: Settings, *, is_ephemeral: bool = False, is_shared: bool = False
) -> AsyncIterator[str]:
    """Yield the database URL.

    The embedded server is stopped at the end, even if a killed process had started it; a `shared`
    one only if it was started here. A guardian process stops it if this process is killed. An
    ephemeral one leaves no files.
    """
    if settings.database.url:
        yield settings.database.url.get_secret_value()
        return
    make_folder(settings.data_dir)
    server = EmbeddedPostgres(
        resolve_embedded_root(settings),
        settings=EPHEMERAL_SETTINGS if is_ephemeral else None,
        tcp=settings.database.tcp,
    )
    # Leaving blocks instead of awaiting: a second Ctrl-C cancels what is awaited, and would leave
    # Postgres running.
    with ExitStack() as stack:
        if is_ephemeral:
            stack.callback(shutil.rmtree, server.root, ignore_errors=True)
        if not (is_shared and server.is_running):
            stack.enter_context(guard_server(server))
        # Left before the guard: a start that was interrupted ends before the server is stopped, not
        # after.
        starter = stack.enter_context(ThreadPoolExecutor(1))
        await asyncio.get_running_loop().run_in_executor(
            starter, partial(server.start, shared=is_shared)
        )
        restart_task = asyncio.create_task(_restart_when_killed(server, starter))
        stack.callback(restart_task.cancel)
        yield server.dsn


async def _restart_when_killed(server: EmbeddedPostgres, starter: Executor) -> None:
    """Restart the server at the same address if it is killed."""
    while True:
        await asyncio.sleep(RESTART_CHECK_S)
        if server.is_running:
            continue
        log.error("embedded_postgres_died")
        try:
            await asyncio.get_running_loop().run_in_executor(starter, server.start)
        except DatabaseUnavailable as error:
            # The next check tries again.
            log.error("embedded_postgres_restart_failed", detail=error.detail)


def strip_password(dsn: str) -> str:
    parts = urlsplit(dsn)
    user, at, host = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{user.partition(':')[0]}{at}{host}"))


def resolve_embedded_root(settings: Settings) -> Path:
    return settings.data_dir.resolve() / POSTGRES_FOLDER


def check_database_exists(
    settings: Settings, alternative: str = "name the server that runs elsewhere (--server), "
) -> None:
    """Raise NotFound if the database does not exist.

    A reading command must not create one in a mistyped folder. `alternative` is added to the
    remedy.
    """
    if settings.database.url is None and not resolve_embedded_root(settings).exists():
        raise NotFound(
            f"No data folder at {settings.data_dir.resolve()}.",
            code="NO_DATA_FOLDER",
            remedy=f"Correct --data, {alternative}or create one there with `anabranch up` or "
            "`anabranch ingest`.",
        )
