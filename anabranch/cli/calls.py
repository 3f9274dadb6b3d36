"""One call of the HTTP API, for commands that need no more."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

from anabranch.cli.options import Remote


def told_moment(moment: datetime | None) -> str | None:
    """As a call takes it: UTC where no zone is given."""
    return moment.isoformat() if moment else None


def got(path: str, common: Remote, **parameters: Any) -> dict[str, Any]:
    from anabranch.cli.serving import api_client

    async def ask() -> dict[str, Any]:
        async with api_client(common) as client:
            return await client.get(path, **parameters)

    return asyncio.run(ask())


def posted(path: str, body: dict[str, Any], common: Remote) -> dict[str, Any]:
    """With the stages at work, where no server is."""
    from anabranch.cli.serving import api_client

    async def ask() -> dict[str, Any]:
        async with api_client(common, stages=("all",)) as client:
            return await client.post(path, body)

    return asyncio.run(ask())
