"""`anabranch open`."""

from __future__ import annotations

import asyncio

from anabranch.cli.options import RemoteOptions
from schemas.errors import NotFound


def print_login_link(*, common: RemoteOptions = RemoteOptions()) -> int:  # noqa: B008
    """Print a link that opens the server in a browser. It works once, for ten minutes."""
    link = asyncio.run(_create_link(common))
    if common.is_json:
        common.print_result(link)
    else:
        print(link["url"])
    return 0


async def _create_link(common: RemoteOptions) -> dict[str, str]:
    from anabranch.cli.http_client import ApiClient
    from anabranch.cli.server_connection import find_lasting_server

    server = await find_lasting_server(common)
    if server is None:
        raise NotFound(
            f"No server is running in {common.load_settings().data_dir}.",
            code="NO_SERVER",
            remedy="Start one with `anabranch up`, or give the URL of one with --server.",
        )
    async with ApiClient(*server) as client:
        link = await client.post("/v1/login-links", {})
    return {
        "url": link["url"] if "://" in link["url"] else client.url + link["url"],
        "expires_at": link["expires_at"],
    }
