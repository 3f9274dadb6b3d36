"""The storage that a command works on directly: that of the server in the data folder, else its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

from anabranch.cli.serving import living_server
from anabranch.process.data_folder import check_log
from anabranch.process.database import check_begun, database
from anabranch.process.logs import configure_logs
from anabranch.settings import Settings
from schemas.errors import ConfigurationError


@asynccontextmanager
async def database_url(settings: Settings) -> AsyncIterator[str]:
    """Of a database that is there: raises NotFound where it would have to be made."""
    async with _database_url(settings, allowed=partial(check_begun, elsewhere="")) as dsn:
        yield dsn


@asynccontextmanager
async def beginning_database_url(settings: Settings) -> AsyncIterator[str]:
    """The same for a command that may make it."""
    async with _database_url(settings, allowed=lambda settings: None) as dsn:
        yield dsn


@asynccontextmanager
async def _database_url(settings: Settings, *, allowed: Callable[[Settings], None]) -> AsyncIterator[str]:
    configure_logs(settings.logging)
    server = await living_server(settings)
    if server is not None:
        check_log(settings, server.log, f"the server in {settings.data_dir}")
        yield server.database_url or _external_url(settings)
        return
    allowed(settings)
    async with database(settings, shared=True) as dsn:
        yield dsn


def _external_url(settings: Settings) -> str:
    """The server's own file does not hold it: it may have a password."""
    if settings.database.url is None:
        raise ConfigurationError(
            f"The server in {settings.data_dir} uses a database outside of it, and no setting names that database.",
            code="NO_DATABASE_URL",
            remedy="Set ANABRANCH_DATABASE__URL to the same value as for the server.",
        )
    return settings.database.url.get_secret_value()
