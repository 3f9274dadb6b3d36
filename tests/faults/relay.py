"""A TCP proxy in front of a server on TCP or a Unix socket, which drops responses or refuses
connections on demand.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from urllib.parse import parse_qs, urlsplit, urlunsplit

CHUNK = 1 << 16


class TcpRelay:
    """Forward bytes as they arrive. If `should_drop_answer` holds for a piece that a client sends,
    the connection is cut once the server has responded. While `unavailable` is set, connections are
    refused, and existing ones are cut.
    """

    def __init__(self, host: str, port: int) -> None:
        """A host that begins with a slash is the folder of a Postgres socket."""
        self.should_drop_answer: Callable[[bytes], bool] = lambda _: False
        self.n_dropped = 0
        self.n_refused = 0
        self.port = 0
        self._target = (host, port)
        self._unavailable = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()

    @property
    def unavailable(self) -> bool:
        return self._unavailable

    @unavailable.setter
    def unavailable(self, unavailable: bool) -> None:
        self._unavailable = unavailable
        if unavailable:
            self._loop.call_soon_threadsafe(self._abort_connections)

    def relay_url(self, url: str) -> str:
        """Return the URL with the port of this relay."""
        parts = urlsplit(url)
        user, at, _ = parts.netloc.rpartition("@")
        return urlunsplit(parts._replace(netloc=f"{user}{at}127.0.0.1:{self.port}", query=""))

    def run(self, ready: threading.Event) -> None:
        """Run until stopped, in its own thread."""
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._relay, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        try:
            self._loop.run_forever()
        finally:
            self._abort_connections()
            server.close()
            self._loop.run_until_complete(self._cancel_tasks())
            self._loop.close()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)

    async def _cancel_tasks(self) -> None:
        await asyncio.gather(
            *(asyncio.all_tasks() - {asyncio.current_task()}), return_exceptions=True
        )

    def _abort_connections(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._unavailable:
            self.n_refused += 1
            writer.transport.abort()
            return
        with suppress(OSError):
            host, port = self._target
            if host.startswith("/"):
                server_reader, server_writer = await asyncio.open_unix_connection(
                    f"{host}/.s.PGSQL.{port}"
                )
            else:
                server_reader, server_writer = await asyncio.open_connection(host, port)
            dropping = asyncio.Event()
            self._writers |= {writer, server_writer}
            try:
                await self._run_until_first_ends(
                    self._forward_requests(reader, server_writer, dropping),
                    self._forward_answers(server_reader, writer, dropping),
                )
            finally:
                self._writers -= {writer, server_writer}
                server_writer.transport.abort()
        writer.transport.abort()

    async def _run_until_first_ends(self, *work: Coroutine[None, None, None]) -> None:
        """Cancel the others once one ends."""
        tasks = [asyncio.create_task(each) for each in work]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _forward_requests(
        self, reader: asyncio.StreamReader, server: asyncio.StreamWriter, dropping: asyncio.Event
    ) -> None:
        while piece := await reader.read(CHUNK):
            if self.should_drop_answer(piece):
                dropping.set()
            server.write(piece)
            await server.drain()

    async def _forward_answers(
        self, server: asyncio.StreamReader, writer: asyncio.StreamWriter, dropping: asyncio.Event
    ) -> None:
        while piece := await server.read(CHUNK):
            if dropping.is_set():
                self.n_dropped += 1
                return
            writer.write(piece)
            await writer.drain()


@contextmanager
def run_relay(url: str) -> Iterator[TcpRelay]:
    """Run a relay in front of the server of this URL."""
    parts = urlsplit(url)
    query = parse_qs(parts.query)
    host, port = (
        query.get("host", [parts.hostname or "127.0.0.1"])[0],
        int(query.get("port", [parts.port or 0])[0]),
    )
    relay, ready = TcpRelay(host, port), threading.Event()
    thread = threading.Thread(target=relay.run, args=(ready,), name="tcp-relay")
    thread.start()
    ready.wait()
    try:
        yield relay
    finally:
        relay.stop()
        thread.join()
