"""`anabranch open`."""

from __future__ import annotations

import asyncio

from anabranch.cli.options import Remote
from schemas.errors import NotFound


def open_browser(*, common: Remote = Remote()) -> int:  # noqa: B008
    """Print a link that opens the server in a browser. It can be opened once, within ten minutes."""
    link = asyncio.run(_link(common))
    if common.json:
        common.show(link)
    else:
        print(link["url"])
    return 0


async def _link(common: Remote) -> dict[str, str]:
    from anabranch.cli.serving import lasting_server
    from anabranch.client import ApiClient

    found = await lasting_server(common)
    if found is None:
        raise NotFound(f"No server runs in {common.settings().data_dir}.", code="NO_SERVER", remedy="Start one with `anabranch up`, or name one with --server.")
    async with ApiClient(*found) as client:
        link = await client.post("/v1/login-links", {})
    return {"url": link["url"] if "://" in link["url"] else client.url + link["url"], "expires_at": link["expires_at"]}
