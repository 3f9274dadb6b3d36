"""A TCP relay before a server on TCP or on a Unix socket, that loses answers and is away when it is told to."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from urllib.parse import parse_qs, urlsplit, urlunsplit

CHUNK = 1 << 16


class Wire:
    """Passes bytes on as they come. `lose` is asked of each piece that a client sends: the answer to it gets lost, and the connection with it, once the server
    has given it. While `away` is set nobody is let in, and whoever is in is thrown out."""

    def __init__(self, host: str, port: int) -> None:
        """A host that begins with a slash is the folder of a Postgres' socket."""
        self.lose: Callable[[bytes], bool] = lambda _: False
        self.lost = 0
        self.refused = 0
        self.port = 0
        self._target = (host, port)
        self._away = False
        self._inside: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()

    @property
    def away(self) -> bool:
        return self._away

    @away.setter
    def away(self, away: bool) -> None:
        self._away = away
        if away:
            self._loop.call_soon_threadsafe(self._throw_out)

    def before(self, url: str) -> str:
        """The URL with this relay's port in place of the server's."""
        parts = urlsplit(url)
        user, at, _ = parts.netloc.rpartition("@")
        return urlunsplit(parts._replace(netloc=f"{user}{at}127.0.0.1:{self.port}", query=""))

    def run(self, ready: threading.Event) -> None:
        """Until stopped, in a thread of its own."""
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._relay, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        try:
            self._loop.run_forever()
        finally:
            self._throw_out()
            server.close()
            self._loop.run_until_complete(self._end())
            self._loop.close()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)

    async def _end(self) -> None:
        await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}), return_exceptions=True)

    def _throw_out(self) -> None:
        for writer in self._inside:
            writer.transport.abort()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._away:
            self.refused += 1
            writer.transport.abort()
            return
        with suppress(OSError):
            host, port = self._target
            if host.startswith("/"):
                server_reader, server_writer = await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
            else:
                server_reader, server_writer = await asyncio.open_connection(host, port)
            losing = asyncio.Event()
            self._inside |= {writer, server_writer}
            try:
                await self._both(self._asking(reader, server_writer, losing), self._answering(server_reader, writer, losing))
            finally:
                self._inside -= {writer, server_writer}
                server_writer.transport.abort()
        writer.transport.abort()

    async def _both(self, *work: Coroutine[None, None, None]) -> None:
        """Until either ends."""
        tasks = [asyncio.create_task(each) for each in work]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _asking(self, reader: asyncio.StreamReader, server: asyncio.StreamWriter, losing: asyncio.Event) -> None:
        while piece := await reader.read(CHUNK):
            if self.lose(piece):
                losing.set()
            server.write(piece)
            await server.drain()

    async def _answering(self, server: asyncio.StreamReader, writer: asyncio.StreamWriter, losing: asyncio.Event) -> None:
        while piece := await server.read(CHUNK):
            if losing.is_set():
                self.lost += 1
                return
            writer.write(piece)
            await writer.drain()


@contextmanager
def wire(url: str) -> Iterator[Wire]:
    """Before the server of this URL."""
    parts = urlsplit(url)
    query = parse_qs(parts.query)
    host, port = query.get("host", [parts.hostname or "127.0.0.1"])[0], int(query.get("port", [parts.port or 0])[0])
    found, ready = Wire(host, port), threading.Event()
    thread = threading.Thread(target=found.run, args=(ready,), name="wire")
    thread.start()
    ready.wait()
    try:
        yield found
    finally:
        found.stop()
        thread.join()
