"""The server that a command speaks to: a named one, the one that lives in the data folder, or one of its own for as long as it takes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from anabranch.cli.credentials import find_token
from anabranch.cli.http_client import ApiClient
from anabranch.cli.options import RemoteOptions
from anabranch.cli.output import print_stderr
from anabranch.config.settings import Settings
from anabranch.process.data_folder import ServerInfo, find_server, is_locked, make_folder
from anabranch.process.database import check_database_exists
from anabranch.process.logs import configure_logs

START_TIMEOUT_S = 60.0
QUERY_STAGES = ("control", "runs")
"""Stages beside a command that only asks: the generation is there, and the question is kept."""


@asynccontextmanager
async def open_client(common: RemoteOptions, *, stages: Sequence[str] = QUERY_STAGES) -> AsyncIterator[ApiClient]:
    """For a data folder that is there: raises NotFound where it is not. `stages` are what a server of its own would run beside the API."""
    async with _open_client(common, stages, check_allowed=check_database_exists) as client:
        yield client


@asynccontextmanager
async def open_or_initialize_client(common: RemoteOptions) -> AsyncIterator[ApiClient]:
    """For a data folder that may have to be made; with all stages."""
    async with _open_client(common, ("all",), check_allowed=lambda settings: None) as client:
        yield client


def warn_if_server_stops(client: ApiClient, common: RemoteOptions) -> None:
    """Where what was accepted is not waited for, and nobody is left to do it."""
    if client.is_ephemeral:
        print_stderr("no server stays: what was accepted goes on while `anabranch up` runs", quiet=common.quiet)


@asynccontextmanager
async def _open_client(common: RemoteOptions, stages: Sequence[str], *, check_allowed: Callable[[Settings], None]) -> AsyncIterator[ApiClient]:
    """`allowed` is asked before a server is started, and raises where none should be."""
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
    """Address and token of the server that is there, and will be when the command has ended. A token belongs to one address: that of the data folder's
    server is in its file, that of `--server` in ANABRANCH_TOKEN, else where `anabranch login` stored it."""
    if common.server:
        return common.server, os.environ.get("ANABRANCH_TOKEN") or find_token(common.server)
    settings = common.load_settings()
    configure_logs(settings.logging)
    server = await wait_for_local_server(settings)
    return (server.url, server.token) if server else None


async def wait_for_local_server(settings: Settings) -> ServerInfo | None:
    """The server in the data folder; one that is just starting is waited for."""
    for _ in range(int(START_TIMEOUT_S / 0.25)):
        server = find_server(settings.data_dir)
        if server or not is_locked(settings.data_dir):
            return server
        await asyncio.sleep(0.25)
    return None


@asynccontextmanager
async def start_temporary_server(common: RemoteOptions, settings: Settings, stages: Sequence[str]) -> AsyncIterator[ServerInfo]:
    """Its log goes to a file in the data folder. What makes one is loaded only here: most commands find one."""
    from anabranch.process.supervisor import LaunchPlan, run_server

    print_stderr(f"no server in {settings.data_dir}: starting one for this command", quiet=common.quiet)
    make_folder(settings.data_dir)
    server_settings = settings.model_copy(update={"api": settings.api.model_copy(update={"port": 0})})
    with (settings.data_dir / "commands.log").open("ab") as output:
        async with run_server(LaunchPlan(server_settings, common.to_arguments(), stages, output=output)) as (server, _):
            yield server
