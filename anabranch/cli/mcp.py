"""`anabranch mcp`."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal

from anabranch.cli.errors import OK
from anabranch.cli.options import JUDGEMENT_STAGES, REMOTE, RemoteOptions, make_group
from anabranch.cli.output import print_stderr
from schemas.errors import AnabranchError

if TYPE_CHECKING:
    from httpx2 import AsyncClient

app = make_group("mcp")
CLIENT_FILES = {
    "claude": "claude_desktop_config.json of Claude Desktop, or .mcp.json for Claude Code",
    "cursor": "~/.cursor/mcp.json, or .cursor/mcp.json of a project",
    "vscode": ".vscode/mcp.json of a workspace",
}


@app.default
def serve(*, common: RemoteOptions = REMOTE) -> int:
    """Serve one agent on stdin and stdout, until stdin ends.

    Without a running server, one runs in the data folder for as long as this command.
    """
    asyncio.run(_serve(common))
    return OK


@app.command
def config(
    client: Literal["claude", "cursor", "vscode"], /, *, common: RemoteOptions = REMOTE
) -> int:
    """Print the settings with which a client starts `anabranch mcp`.

    Args:
        client: The client to configure.
    """
    common.print_note(f"for {CLIENT_FILES[client]}:")
    try:
        _check_location(common)
    except AnabranchError as error:
        # The settings are right once the server or the data is there.
        print_stderr(f"warning: {error.detail} {error.remedy}")
    location = (
        ["--server", common.server]
        if common.server
        else ["--data", str(common.load_settings().data_dir.resolve())]
    )
    tenant = ["--tenant", common.tenant] if common.tenant else []
    entry: dict[str, Any] = {
        "command": sys.executable,
        "args": ["-m", "anabranch", "mcp", *location, *tenant, *common.to_arguments()],
    }
    snippet = (
        {"servers": {"anabranch": {"type": "stdio", **entry}}}
        if client == "vscode"
        else {"mcpServers": {"anabranch": entry}}
    )
    print(json.dumps(snippet, indent=2, ensure_ascii=False))
    return OK


def _check_location(common: RemoteOptions) -> None:
    """Raise AnabranchError unless the command finds its server or data when a client starts it."""
    from anabranch.cli.credentials import find_token
    from anabranch.cli.login import fetch_identity
    from anabranch.process.database import check_database_exists

    if common.server:
        # A client does not pass on ANABRANCH_TOKEN of this shell.
        asyncio.run(fetch_identity(common.server, find_token(common.server)))
    else:
        check_database_exists(common.load_settings())


async def _serve(common: RemoteOptions) -> None:
    from mcp.server.stdio import stdio_server

    from anabranch.cli.server_connection import open_client
    from anabranch.config.version import get_program_version
    from api.agents.server import build_server

    async with open_client(common, stages=JUDGEMENT_STAGES) as first:

        @asynccontextmanager
        async def open_http() -> AsyncIterator[AsyncClient]:
            if first.is_ephemeral:
                yield first.http
                return
            # Found again for each call, since a restarted server has another token.
            async with open_client(common) as client:
                yield client.http

        server = build_server(
            open_http,
            get_program_version(),
            with_feedback=common.load_settings().api.agent_feedback,
        )
        async with stdio_server() as (read_stream, write_stream):
            await server.run(read_stream, write_stream, server.create_initialization_options())
