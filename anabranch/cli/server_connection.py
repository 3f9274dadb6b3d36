"""Connection to the server given by --server, to that of the data folder, or to a temporary one."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from anabranch.cli.credentials import find_token
from anabranch.cli.http_client import ApiClient
from anabranch.cli.options import QUERY_STAGES, RemoteOptions
from anabranch.config.settings import Settings
from anabranch.process.data_folder import (
    COMMANDS_LOG_FILE,
    ServerInfo,
    find_server,
    is_locked,
    make_folder,
)
from anabranch.process.database import check_database_exists
from anabranch.process.logs import configure_logs
from schemas.errors import NotFound

START_TIMEOUT_S = 60.0


@asynccontextmanager
async def open_client(
    common: RemoteOptions, *, stages: Sequence[str] = QUERY_STAGES
) -> AsyncIterator[ApiClient]:
    """Connect to the server.

    `stages` run in a temporary one. Raises NotFound if the data folder does not exist.
    """
    async with _open_client(common, stages, check_allowed=check_database_exists) as client:
        yield client


@asynccontextmanager
async def open_or_initialize_client(common: RemoteOptions) -> AsyncIterator[ApiClient]:
    """Connect to the server, creating the data folder if needed.

    A temporary server runs all stages.
    """
    async with _open_client(common, ("all",), check_allowed=lambda settings: None) as client:
        yield client


@asynccontextmanager
async def open_lasting_client(common: RemoteOptions) -> AsyncIterator[ApiClient]:
    """Connect to a server that outlives the command. Raises NotFound if none runs."""
    server = await find_lasting_server(common)
    if server is None:
        raise NotFound(
            f"No server is running in {common.load_settings().data_dir}.",
            code="NO_SERVER",
            remedy="Start one with `anabranch up`, or give the URL of one with --server.",
        )
    async with ApiClient(*server, tenant=common.tenant) as client:
        yield client


def warn_if_server_stops(client: ApiClient, common: RemoteOptions) -> None:
    """Warn that accepted work stays pending if the server stops with this command."""
    if client.is_ephemeral:
        common.print_note(
            "the server stops with this command; accepted work continues while `anabranch up` runs"
        )


@asynccontextmanager
async def _open_client(
    common: RemoteOptions, stages: Sequence[str], *, check_allowed: Callable[[Settings], None]
) -> AsyncIterator[ApiClient]:
    """`check_allowed` raises if no temporary server may be started."""
    if server_address := await find_lasting_server(common):
        async with ApiClient(*server_address, tenant=common.tenant) as client:
            yield client
        return
    settings = common.load_settings()
    check_allowed(settings)
    async with (
        start_temporary_server(common, settings, stages) as server,
        ApiClient(server.url, server.token, tenant=common.tenant, is_ephemeral=True) as client,
    ):
        yield client


async def find_lasting_server(common: RemoteOptions) -> tuple[str, str | None] | None:
    """Return URL and token of a server that outlives the command, or None.

    The token of the data folder's server comes from its file, that of `--server` from
    ANABRANCH_TOKEN or `anabranch login`; a token is never sent to another server.
    """
    if common.server:
        return common.server, os.environ.get("ANABRANCH_TOKEN") or find_token(common.server)
    settings = common.load_settings()
    configure_logs(settings.logging)
    server = await wait_for_local_server(settings)
    return (server.url, server.token) if server else None


async def wait_for_local_server(settings: Settings) -> ServerInfo | None:
    """Return the server of the data folder, or None.

    Waits up to `START_TIMEOUT_S` for one that is starting.
    """
    for _ in range(int(START_TIMEOUT_S / 0.25)):
        server = find_server(settings.data_dir)
        if server or not is_locked(settings.data_dir):
            return server
        await asyncio.sleep(0.25)
    return None


@asynccontextmanager
async def start_temporary_server(
    common: RemoteOptions, settings: Settings, stages: Sequence[str]
) -> AsyncIterator[ServerInfo]:
    """Run a server on a free port until the context ends.

    It logs to `commands.log` in the data folder.
    """
    from anabranch.process.fork_server import ForkServer
    from anabranch.process.supervisor import LaunchPlan, run_server

    common.print_note(f"no server is running in {settings.data_dir}; starting one for this command")
    make_folder(settings.data_dir)
    # Any free port: the configured one may belong to another server.
    server_settings = settings.model_copy(
        update={"api": settings.api.model_copy(update={"port": 0})}
    )
    with (settings.data_dir / COMMANDS_LOG_FILE).open("ab") as output, ForkServer() as fork_server:
        plan = LaunchPlan(server_settings, common.to_arguments(), stages, output=output)
        async with run_server(plan, fork_server) as (server, _):
            yield server
