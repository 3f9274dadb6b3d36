"""The server that a command speaks to: a named one, the one that lives in the data folder, or one of its own for as long as it takes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from anabranch.cli.credentials import find_token
from anabranch.cli.options import Remote
from anabranch.cli.output import say
from anabranch.client import ApiClient
from anabranch.process.data_folder import Server, find_server, is_locked, make_folder
from anabranch.process.database import check_begun
from anabranch.process.logs import configure_logs
from anabranch.settings import Settings

STARTING_S = 60.0
READING = ("control", "runs")
"""Stages beside a command that only asks: the generation is there, and the question is kept."""


@asynccontextmanager
async def api_client(common: Remote, *, stages: Sequence[str] = READING) -> AsyncIterator[ApiClient]:
    """For a data folder that is there: raises NotFound where it is not. `stages` are what a server of its own would run beside the API."""
    async with _client(common, stages, allowed=check_begun) as client:
        yield client


@asynccontextmanager
async def beginning_client(common: Remote) -> AsyncIterator[ApiClient]:
    """For a data folder that may have to be made; with all stages."""
    async with _client(common, ("all",), allowed=lambda settings: None) as client:
        yield client


def tell_who_goes_on(client: ApiClient, common: Remote) -> None:
    """Where what was accepted is not waited for, and nobody is left to do it."""
    if client.passing:
        say("no server stays: what was accepted goes on while `anabranch up` runs", quiet=common.quiet)


@asynccontextmanager
async def _client(common: Remote, stages: Sequence[str], *, allowed: Callable[[Settings], None]) -> AsyncIterator[ApiClient]:
    """`allowed` is asked before a server is started, and raises where none should be."""
    if lasting := await lasting_server(common):
        async with ApiClient(*lasting, tenant=common.tenant) as client:
            yield client
        return
    settings = common.settings()
    allowed(settings)
    async with own_server(common, settings, stages) as server, ApiClient(server.url, server.token, tenant=common.tenant, passing=True) as client:
        yield client


async def lasting_server(common: Remote) -> tuple[str, str | None] | None:
    """Address and token of the server that is there, and will be when the command has ended. A token belongs to one address: that of the data folder's
    server is in its file, that of `--server` in ANABRANCH_TOKEN, else where `anabranch login` stored it."""
    if common.server:
        return common.server, os.environ.get("ANABRANCH_TOKEN") or find_token(common.server)
    settings = common.settings()
    configure_logs(settings.logging)
    found = await living_server(settings)
    return (found.url, found.token) if found else None


async def living_server(settings: Settings) -> Server | None:
    """The server in the data folder; one that is just starting is waited for."""
    for _ in range(int(STARTING_S / 0.25)):
        found = find_server(settings.data_dir)
        if found or not is_locked(settings.data_dir):
            return found
        await asyncio.sleep(0.25)
    return None


@asynccontextmanager
async def own_server(common: Remote, settings: Settings, stages: Sequence[str]) -> AsyncIterator[Server]:
    """Its log goes to a file in the data folder. What makes one is loaded only here: most commands find one."""
    from anabranch.process.supervisor import Plan, running

    say(f"no server in {settings.data_dir}: starting one for this command", quiet=common.quiet)
    make_folder(settings.data_dir)
    free_port = settings.model_copy(update={"api": settings.api.model_copy(update={"port": 0})})
    with (settings.data_dir / "commands.log").open("ab") as output:
        async with running(Plan(free_port, common.arguments(), stages, output=output)) as (server, _):
            yield server
