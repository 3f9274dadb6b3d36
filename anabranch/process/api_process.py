"""What an API process does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from socket import socket

import uvicorn

from anabranch.composition.api import prepare_api
from anabranch.composition.storage import wait_for_kafka
from anabranch.process.data_folder import check_ours
from anabranch.process.database import database
from anabranch.process.heap import settle_heap
from anabranch.process.http_protocol import Protocol
from anabranch.process.listening import check_free
from anabranch.settings import Settings
from api.app import create_app

PORT_PATIENCE_S = 2.0
KEEP_ALIVE_S = 75
"""Longer than clients keep an idle connection (HTTP libraries: 5 to 60 s), so that they end it: one that the server ends may just be used again."""
LOOK_S = 0.4
"""Between two looks for callers who take nothing, once the server stops."""


class Server(uvicorn.Server):
    """Leaves signals to whoever runs it. When it stops, callers who have ceased to take what is written to them are not waited for."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def shutdown(self, sockets: list[socket] | None = None) -> None:
        dropping = asyncio.create_task(self._drop_stalled())
        try:
            await super().shutdown(sockets)
        finally:
            dropping.cancel()

    async def _drop_stalled(self) -> None:
        full: dict[Protocol, int] = {}
        while True:
            before, full = full, {one: one.emptied for one in self.server_state.connections if isinstance(one, Protocol) and one.flow.write_paused}
            for connection, times in full.items():
                if before.get(connection) == times:
                    connection.transport.abort()
            await asyncio.sleep(LOOK_S)


async def serve_api(settings: Settings) -> None:
    """Until cancelled. Raises ConfigurationError where the port is taken, before anything is made."""
    await check_free(settings.api.host, settings.api.port, patience_s=PORT_PATIENCE_S)
    check_ours(settings.data_dir)
    await wait_for_kafka(settings)
    async with database(settings, shared=True) as dsn, prepare_api(settings, dsn) as services:
        config = uvicorn.Config(
            create_app(services, requests_per_address=settings.api.requests_per_address, min_upload_rate=settings.api.min_upload_rate),
            host=settings.api.host,
            port=settings.api.port,
            log_config=None,
            access_log=False,
            http=Protocol,
            lifespan="off",
            timeout_graceful_shutdown=3,
            timeout_keep_alive=KEEP_ALIVE_S,
            server_header=False,
            # X-Forwarded-For is a claim: with it one local caller would count as many.
            proxy_headers=False,
        )
        settle_heap()
        await _serve(Server(config), services.feed.stop)


async def _serve(server: Server, stop_streams: Callable[[], None]) -> None:
    """Being cancelled ends it gracefully: streams end, what is being answered is still answered."""
    serving = asyncio.create_task(server.serve())
    try:
        await asyncio.shield(serving)
    except asyncio.CancelledError:
        stop_streams()
        server.should_exit = True
        await serving
        raise
