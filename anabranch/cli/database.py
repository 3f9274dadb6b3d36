"""Direct access of commands to the database.

It is that of the running server, else one opened for the command.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from anabranch.cli.server_connection import wait_for_local_server
from anabranch.config.settings import Settings
from anabranch.process.data_folder import check_log_kind
from anabranch.process.database import check_database_exists, open_database
from anabranch.process.logs import configure_logs
from schemas.errors import ConfigurationError


@asynccontextmanager
async def open_command_database(
    settings: Settings, *, may_create: bool = False
) -> AsyncIterator[str]:
    """Yield the DSN of the database. Raises NotFound if there is none, unless it may be created."""
    configure_logs(settings.logging)
    server = await wait_for_local_server(settings)
    if server is not None:
        # The command's own settings may name another log than the server uses.
        check_log_kind(settings, server.log, f"the server in {settings.data_dir}")
        if server.database_url:
            yield server.database_url
        # The server's file in the data folder omits an external URL, which may hold a password.
        elif settings.database.url:
            yield settings.database.url.get_secret_value()
        else:
            raise ConfigurationError(
                f"The server in {settings.data_dir} uses an external database, and database.url "
                "is not set.",
                code="NO_DATABASE_URL",
                remedy="Set ANABRANCH_DATABASE__URL to the same value as for the server.",
            )
        return
    if not may_create:
        check_database_exists(settings, alternative="")
    async with open_database(settings, is_shared=True) as dsn:
        yield dsn
