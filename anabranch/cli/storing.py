"""The storage that a command works on directly: that of the server in the data folder, else its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from anabranch.cli.options import Common
from anabranch.cli.serving import living_server
from anabranch.data_folder import check_log
from anabranch.database import database
from anabranch.settings import Settings


@asynccontextmanager
async def database_url(common: Common, settings: Settings) -> AsyncIterator[str]:
    server = await living_server(settings)
    if server is not None:
        check_log(settings, server.log, f"the server in {settings.data_dir}")
        yield server.database_url
        return
    async with database(settings, shared=True) as dsn:
        yield dsn
