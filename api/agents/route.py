"""`/mcp`: the MCP server over streamable HTTP, for the caller of each request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from importlib import import_module

import httpx2
from fastapi import APIRouter, Request
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.operations import OperationRoute, operation
from api.services import Services, ServicesDep
from api.sse import run_while_connected

FORWARDED_HEADERS = ("authorization", "x-anabranch-tenant")
router = APIRouter(route_class=OperationRoute, include_in_schema=False)


@router.post("/mcp")
@operation("reader")
async def serve_agent(request: Request, services: ServicesDep) -> Response:
    """Answer one message of the protocol, without a session: GET and DELETE are for sessions."""
    return McpResponse(request, services)


class McpResponse(Response):
    """The reply to one message. A client that disconnects ends its call."""

    def __init__(self, request: Request, services: Services) -> None:
        super().__init__()
        self.request, self.services = request, services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # In a thread and not at start-up: the library takes a second of CPU to import.
        agents = await asyncio.to_thread(import_module, "api.agents.server")
        server = agents.build_server(
            self._open_http, self.request.app.version, with_feedback=self.services.agent_feedback
        )
        messages = asyncio.Queue[Message]()
        body = await self.request.body()
        manager = agents.create_http_manager(server, body)
        messages.put_nowait({"type": "http.request", "body": body, "more_body": False})

        async def serve() -> None:
            async with manager.run():
                await manager.handle_request(scope, messages.get, send)

        with suppress(ClientDisconnect):
            await run_while_connected(receive, serve())

    @asynccontextmanager
    async def _open_http(self) -> AsyncIterator[httpx2.AsyncClient]:
        """Open a client that calls this application as the agent does."""
        request = self.request
        headers = {
            name: request.headers[name] for name in FORWARDED_HEADERS if name in request.headers
        }
        headers["x-request-id"] = request.scope["request_id"]
        transport = ApplicationTransport(request.app, request.scope["client"] or ("", 0))
        base_url = self.services.public_url or str(request.base_url)
        async with httpx2.AsyncClient(
            transport=transport, base_url=base_url, headers=headers, timeout=None
        ) as client:
            yield client


@dataclass(frozen=True, slots=True)
class ApplicationTransport(httpx2.AsyncBaseTransport):
    """Calls this application. Unlike httpx2.ASGITransport, it passes events on as they are sent."""

    app: ASGIApp
    client: tuple[str, int]

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        replies = asyncio.Queue[Message | None]()

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            async def send_twice(message: Message) -> None:
                replies.put_nowait(message)
                await send(message)

            await self.app(scope, receive, send_twice)

        transport = httpx2.ASGITransport(app, raise_app_exceptions=False, client=self.client)
        task = asyncio.ensure_future(transport.handle_async_request(request))
        task.add_done_callback(lambda _: replies.put_nowait(None))
        try:
            start = await replies.get()
        except BaseException:
            task.cancel()
            raise
        if start is None:
            raise httpx2.RemoteProtocolError("The application sent no response.")
        return httpx2.Response(
            start["status"], headers=start["headers"], stream=ApplicationStream(task, replies)
        )


@dataclass(frozen=True, slots=True)
class ApplicationStream(httpx2.AsyncByteStream):
    """The parts of a response. Closing it ends the call."""

    task: asyncio.Future[httpx2.Response]
    replies: asyncio.Queue[Message | None]

    async def __aiter__(self) -> AsyncIterator[bytes]:
        # After an error the application has sent a problem before it raises.
        while (message := await self.replies.get()) is not None:
            yield message.get("body", b"")

    async def aclose(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
