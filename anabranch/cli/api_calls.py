"""One call of the HTTP API, for commands that need no more."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

from anabranch.cli.options import RemoteOptions


def format_time(moment: datetime | None) -> str | None:
    """As a call takes it: UTC where no zone is given."""
    return moment.isoformat() if moment else None


def get(path: str, common: RemoteOptions, **parameters: Any) -> dict[str, Any]:
    from anabranch.cli.server_connection import open_client

    async def ask() -> dict[str, Any]:
        async with open_client(common) as client:
            return await client.get(path, **parameters)

    return asyncio.run(ask())


def post(path: str, body: dict[str, Any], common: RemoteOptions) -> dict[str, Any]:
    """With the stages at work, where no server is."""
    from anabranch.cli.server_connection import open_client

    async def ask() -> dict[str, Any]:
        async with open_client(common, stages=("all",)) as client:
            return await client.post(path, body)

    return asyncio.run(ask())
