"""Clients of the MCP server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client


@asynccontextmanager
async def open_agent(http: httpx2.AsyncClient, mode: str = "auto") -> AsyncIterator[Client]:
    """Connect the official client to `/mcp`, over an HTTP client that has the credential.

    Mode `legacy` begins with a handshake, as before version 2026-07-28 of the protocol.
    """
    transport = streamable_http_client(f"{http.base_url}/mcp", http_client=http)
    async with Client(transport, mode=mode) as agent:
        yield agent


async def call_tool(agent: Client, name: str, **arguments: Any) -> dict[str, Any]:
    """Return the structured result of a call that succeeds."""
    result = await agent.call_tool(name, arguments)
    assert not result.is_error, result.content
    return dict(result.structured_content)


async def fail_tool(agent: Client, name: str, **arguments: Any) -> str:
    """Return the text of a call that fails."""
    result = await agent.call_tool(name, arguments)
    assert result.is_error and result.structured_content is None, result
    (content,) = result.content
    return str(content.text)
