"""Wake waiting readers by LISTEN/NOTIFY, over one connection per process."""

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
    """Sets the asyncio events of a topic's listeners when records are committed to it.

    Notifications sent while the connection is down are lost, so readers must poll as well. The
    connection's application name is `anabranch <name>`; other processes read from it that this one
    is alive.
    """

    def __init__(self, dsn: str, name: str) -> None:
        self._dsn = dsn
        self._name = f"anabranch {name}"
        self._waiting: dict[str, set[asyncio.Event]] = defaultdict(set)
        self._listening: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()

    @asynccontextmanager
    async def listen(self, topic: str) -> AsyncIterator[asyncio.Event]:
        """Yield an event that is set whenever the topic may have new records."""
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
                log.debug("listener_disconnected", detail=error.detail)
            except Exception:
                log.exception("listener_failed", connection=self._name, fallback="polling")
                # Release readers that wait for the first connection: they poll.
                self._ready.set()
            await asyncio.sleep(RECONNECT_S)

    async def _listen_until_lost(self) -> None:
        connection = await connect(self._dsn, name=self._name)
        lost = asyncio.Event()
        try:
            connection.add_termination_listener(lambda _: lost.set())
            await connection.add_listener(CHANNEL, self._on_notify)
            self._ready.set()
            await lost.wait()
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            raise DatabaseUnavailable(f"The LISTEN connection was lost: {error}") from error
        finally:
            connection.terminate()

    def _on_notify(self, _connection: Any, _process: int, _channel: str, topics: Any) -> None:
        for topic in str(topics).split(","):
            for event in self._waiting.get(topic, ()):
                event.set()
