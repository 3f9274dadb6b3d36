"""A reader of the stream who takes nothing for a while, over a real connection: nobody waits for it, and it is told all that it missed."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest
import uvicorn

from anabranch.desk.feed import PAGE, EventFeed
from anabranch.desk.log_entries import Entries
from anabranch.process.api_process import Server
from anabranch.process.http_protocol import Protocol
from api.app import create_app
from schemas.ports.feed import Feed, Page
from schemas.ports.log import EventLog
from sql.log import PgLog
from sql.log_feed import PgFeed
from streams.codec import Codec
from streams.feed import OffsetFeed
from streams.topics import partition_counts
from tests.contract.logs import LogCase, log_and_subscriber, open_case
from tests.integration.test_http_server import caller, until
from tests.unit.api_services import FakeDocuments, services
from tests.unit.test_event_feed import DOCUMENT, Nothing, One, record

__all__ = ["log_and_subscriber", "open_case"]

BEHIND = 300
SMALL = 8192


@dataclass
class Watched:
    """A feed that counts how often it is read."""

    feed: Feed
    reads: int = 0

    async def first(self) -> str:
        return await self.feed.first()

    async def now(self, topics: Any) -> str:
        return await self.feed.now(topics)

    async def behind(self, after: str, topics: Any, most: int) -> int:
        return await self.feed.behind(after, topics, most)

    async def read(self, after: str, topics: Any, limit: int) -> Page:
        self.reads += 1
        return await self.feed.read(after, topics, limit)


async def no_status(tenant: str, document: Any) -> None:
    return None


@dataclass
class World:
    log: EventLog
    feed: EventFeed
    reads: Watched
    server: Server
    serving: asyncio.Task[None]
    said: int = 0

    @property
    def port(self) -> int:
        return int(self.server.servers[0].sockets[0].getsockname()[1])

    async def say(self, count: int) -> None:
        kinds = range(self.said, self.said + count)
        self.said += count
        await self.log.append([record(f"kind{number}.v1", "queries", "default", DOCUMENT) for number in kinds])

    def stalled(self) -> list[Protocol]:
        return [one for one in self.server.server_state.connections if isinstance(one, Protocol) and one.flow.write_paused]


@pytest.fixture
async def world(log_and_subscriber: LogCase) -> AsyncIterator[World]:
    log = log_and_subscriber.log
    await log.create_topics(partition_counts(1), retention_ms={})
    reads = Watched(PgFeed(log._pool) if isinstance(log, PgLog) else OffsetFeed(log))
    feed = EventFeed(reads, Entries(Codec(), FakeDocuments()), One(), Nothing(), no_status, poll_s=0.01, most_behind=BEHIND)
    server = Server(uvicorn.Config(create_app(services(feed=feed)), port=0, http=Protocol, lifespan="off", log_config=None, access_log=False))
    task = asyncio.create_task(server.serve())
    await until(lambda: server.started)
    # What a connection may hold in the kernel; those that are accepted take it over.
    server.servers[0].sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL)
    made = World(log, feed, reads, server, task)
    yield made
    await stop(made)


async def stop(world: World) -> None:
    world.feed.stop()
    world.server.should_exit = True
    await world.serving


@dataclass
class Reader:
    """Of server-sent events."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    told: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    async def open(cls, port: int, **headers: str) -> Reader:
        reader, writer = await asyncio.open_connection(sock=caller(port), limit=SMALL)
        lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        writer.write(f"GET /v1/stream?topics=queries HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n".encode())
        return cls(reader, writer)

    async def take(self, enough: Callable[[dict[str, Any]], bool]) -> None:
        """Messages until one is enough."""
        message: dict[str, Any] = {}
        async with asyncio.timeout(60):
            while True:
                name, _, value = (await self.reader.readline()).decode().strip().partition(": ")
                if name in ("id", "event", "data"):
                    message[name] = json.loads(value) if name == "data" else value
                if name == "data":
                    self.told.append(message)
                    if enough(message):
                        return
                    message = {}

    async def close(self) -> None:
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()

    def numbers(self) -> list[int]:
        return [int(one["event"].removeprefix("kind").removesuffix(".v1")) for one in self.told if one["event"].startswith("kind")]

    def missed(self) -> int:
        return sum(one["data"]["missed"] for one in self.told if one["event"] == "dropped")


def is_kind(number: int) -> Callable[[dict[str, Any]], bool]:
    return lambda message: message["event"] == f"kind{number}.v1"


async def stands_still(world: World) -> Reader:
    """One that has opened a stream, and takes nothing of what is said."""
    others = len(world.stalled())
    reader = await Reader.open(world.port)
    await reader.take(lambda message: message["event"] == "open")
    while len(world.stalled()) == others:
        await world.say(50)
        await asyncio.sleep(0)
    return reader


async def test_who_takes_nothing_costs_a_page_and_is_told_what_it_missed_when_it_reads_again(world: World) -> None:
    slow = await stands_still(world)
    [connection] = world.stalled()
    reads = world.reads.reads
    await world.say(2000)
    quick = await Reader.open(world.port, Last_Event_ID=slow.told[0]["id"])
    await quick.take(lambda message: message["event"] == "dropped")
    assert world.reads.reads > reads + 2 and connection in world.stalled() and connection.transport.get_write_buffer_size() < 2 * 65_536
    await slow.take(lambda message: message["event"] == "dropped")
    await world.say(1)
    await slow.take(is_kind(world.said - 1))
    numbers = slow.numbers()
    assert numbers == sorted(set(numbers)) and len(numbers) + slow.missed() == world.said
    assert len(numbers) <= 50 + 4 * PAGE, "what it was told is what was under way"
    dropped = next(one for one in slow.told if one["event"] == "dropped")
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{world.port}") as http:
        page = (await http.get("/v1/events", params={"after": dropped["data"]["after"], "topics": "queries", "limit": 1})).json()
    assert page["items"][0]["type"] == f"kind{numbers[-2] + 1}.v1", "and can be read all the same"
    for reader in (slow, quick):
        await reader.close()


async def test_who_stood_still_goes_on_elsewhere_behind_the_last_that_it_read(world: World) -> None:
    world.feed.most_behind = 100_000
    slow = await stands_still(world)
    await slow.take(is_kind(20))
    await slow.close()
    again = await Reader.open(world.port, Last_Event_ID=slow.told[-1]["id"])
    await again.take(is_kind(world.said - 1))
    assert slow.numbers() + again.numbers() == list(range(world.said)) and not again.missed()
    await again.close()


async def test_the_server_stops_while_somebody_takes_nothing_and_nothing_of_it_is_left(world: World) -> None:
    slow = [await stands_still(world) for _ in range(2)]
    await stop(world)
    assert world.feed.open == 0 and not world.server.server_state.connections
    for reader in slow:
        await reader.close()
