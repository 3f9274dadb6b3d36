"""Run the API process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from socket import socket

import uvicorn

from anabranch.composition.api import prepare_api
from anabranch.config.settings import Settings
from anabranch.kafka.settings import wait_for_kafka
from anabranch.process.data_folder import check_data_folder
from anabranch.process.database import open_database
from anabranch.process.heap import freeze_heap
from anabranch.process.http_protocol import HttpProtocol
from anabranch.process.tcp_ports import wait_for_free_port
from api.app import create_app

PORT_TIMEOUT_S = 2.0
KEEP_ALIVE_S = 75
"""Longer than clients keep an idle connection (HTTP libraries: 5 to 60 s), so that the client
closes it: a connection that the server closes may just be reused.
"""
STALL_CHECK_S = 0.4
"""Interval of the check for stalled clients while the server stops."""


class UvicornServer(uvicorn.Server):
    """Uvicorn that leaves signals to its caller, and that does not wait for stalled clients when it
    stops.
    """

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def shutdown(self, sockets: list[socket] | None = None) -> None:
        stalled_dropper = asyncio.create_task(self._drop_stalled())
        try:
            await super().shutdown(sockets)
        finally:
            stalled_dropper.cancel()

    async def _drop_stalled(self) -> None:
        stalled: dict[HttpProtocol, int] = {}
        while True:
            previously_stalled, stalled = (
                stalled,
                {
                    candidate: candidate.resume_count
                    for candidate in self.server_state.connections
                    if isinstance(candidate, HttpProtocol) and candidate.flow.write_paused
                },
            )
            for connection, resume_count in stalled.items():
                if previously_stalled.get(connection) == resume_count:
                    connection.transport.abort()
            await asyncio.sleep(STALL_CHECK_S)


async def serve_api(settings: Settings) -> None:
    """Serve until cancelled. Raises ConfigurationError if the port is taken, before creating
    anything.
    """
    await wait_for_free_port(settings.api.host, settings.api.port, timeout_s=PORT_TIMEOUT_S)
    check_data_folder(settings.data_dir)
    await wait_for_kafka(settings)
    async with (
        open_database(settings, is_shared=True) as dsn,
        prepare_api(settings, dsn) as services,
    ):
        config = uvicorn.Config(
            create_app(
                services,
                max_requests_per_address=settings.api.requests_per_address,
                min_upload_bytes_per_s=settings.api.min_upload_rate,
            ),
            host=settings.api.host,
            port=settings.api.port,
            log_config=None,
            access_log=False,
            http=HttpProtocol,
            lifespan="off",
            timeout_graceful_shutdown=3,
            timeout_keep_alive=KEEP_ALIVE_S,
            server_header=False,
            # X-Forwarded-For is a claim: with it one local caller would count as many.
            proxy_headers=False,
        )
        freeze_heap()
        await _serve_until_cancelled(UvicornServer(config), services.event_feed.close_streams)


async def _serve_until_cancelled(server: UvicornServer, stop_streams: Callable[[], None]) -> None:
    """Stop gracefully when cancelled: streams end, running requests are completed."""
    serving = asyncio.create_task(server.serve())
    try:
        await asyncio.shield(serving)
    except asyncio.CancelledError:
        stop_streams()
        server.should_exit = True
        await serving
        raise
