"""One LISTEN connection a process, which wakes those who wait for a topic."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import asyncpg
import structlog

from schemas.errors import DatabaseUnavailable
from sql.pool import connect

log = structlog.get_logger(__name__)
CHANNEL = "anabranch_events"
RECONNECT_S = 1.0


class TopicListener:
    """Sets the events of those who listen to a topic when records of it were committed. While the connection is down nobody is woken: poll as well.

    The connection's application name is `anabranch <name>`; while it stands, others can see that this process lives.
    """

    def __init__(self, dsn: str, name: str) -> None:
        self._dsn = dsn
        self._name = f"anabranch {name}"
        self._waiting: dict[str, set[asyncio.Event]] = defaultdict(set)
        self._listening: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()

    @asynccontextmanager
    async def listen(self, topic: str) -> AsyncIterator[asyncio.Event]:
        """An event that is set whenever the topic may have news, for as long as the context is open."""
        event = asyncio.Event()
        self._waiting[topic].add(event)
        if self._listening is None:
            self._listening = asyncio.create_task(self._listen_forever())
        try:
            await self._ready.wait()
            yield event
        finally:
            self._waiting[topic].discard(event)
            if not any(self._waiting.values()):
                await self._stop()

    async def _stop(self) -> None:
        task, self._listening = self._listening, None
        self._ready.clear()
        if task:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _listen_forever(self) -> None:
        while True:
            try:
                await self._listen_until_lost()
            except DatabaseUnavailable as error:
                log.debug("listening again", detail=error.detail)
            except Exception:
                log.exception("listening for events failed; readers poll until it succeeds", connection=self._name)
                # They must not wait for what may never come.
                self._ready.set()
            await asyncio.sleep(RECONNECT_S)

    async def _listen_until_lost(self) -> None:
        """Listen until the connection is lost."""
        connection = await connect(self._dsn, name=self._name)
        lost = asyncio.Event()
        try:
            connection.add_termination_listener(lambda _: lost.set())
            await connection.add_listener(CHANNEL, self._on_notify)
            self._ready.set()
            await lost.wait()
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            raise DatabaseUnavailable(f"The connection that listens for events was lost: {error}") from error
        finally:
            connection.terminate()

    def _on_notify(self, _connection: Any, _process: int, _channel: str, topics: Any) -> None:
        for topic in str(topics).split(","):
            for event in self._waiting.get(topic, ()):
                event.set()
