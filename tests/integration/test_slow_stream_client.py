"""A stalled stream client delays no other and is sent the number of messages it missed."""

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

from anabranch.process.api_process import HttpProtocol, UvicornServer
from processors import TOPICS
from schemas.ports.feed import FeedPage, RecordFeed
from schemas.ports.log import EventLog
from schemas.topics import count_partitions
from services.monitoring.event_feed import PAGE_SIZE, EventFeed, LogEntryBuilder
from sql.log.event_log import PgLog
from sql.log.feed import PgFeed
from streams.codec import Codec
from streams.offset_feed import OffsetFeed
from tests.fakes.event_feed import DOCUMENT_ID, SingleGeneration, make_record
from tests.support.eventually import eventually
from tests.support.http_server import make_config, open_small_buffer_socket
from tests.support.log_cases import LogCase, log_and_subscriber, open_case
from tests.unit.api_fakes import FakeDocuments

__all__ = ["log_and_subscriber", "open_case"]

MAX_EVENTS_BEHIND = 300
SOCKET_BUFFER_BYTES = 8192


@dataclass
class CountingFeed:
    """A feed that counts how often it is read."""

    feed: RecordFeed
    n_reads: int = 0

    async def fetch_begin_cursor(self) -> str:
        return await self.feed.fetch_begin_cursor()

    async def fetch_end_cursor(self, topics: Any) -> str:
        return await self.feed.fetch_end_cursor(topics)

    async def count_following(self, after: str, topics: Any, limit: int) -> int:
        return await self.feed.count_following(after, topics, limit)

    async def read_page(self, after: str, topics: Any, limit: int) -> FeedPage:
        self.n_reads += 1
        return await self.feed.read_page(after, topics, limit)


async def get_no_status(tenant: str, document: Any) -> None:
    return None


@dataclass
class StreamServerEnvironment:
    log: EventLog
    feed: EventFeed
    counting_feed: CountingFeed
    server: UvicornServer
    serve_task: asyncio.Task[None]
    n_published: int = 0

    @property
    def port(self) -> int:
        return int(self.server.servers[0].sockets[0].getsockname()[1])

    async def publish_events(self, count: int) -> None:
        kinds = range(self.n_published, self.n_published + count)
        self.n_published += count
        await self.log.append(
            [make_record(f"kind{number}.v1", "queries", "default", DOCUMENT_ID) for number in kinds]
        )

    def find_stalled_connections(self) -> list[HttpProtocol]:
        return [
            one
            for one in self.server.server_state.connections
            if isinstance(one, HttpProtocol) and one.flow.write_paused
        ]


@pytest.fixture
async def world(log_and_subscriber: LogCase) -> AsyncIterator[StreamServerEnvironment]:
    log = log_and_subscriber.log
    await log.create_topics(count_partitions(TOPICS, 1), retention_ms={})
    reads = CountingFeed(PgFeed(log._pool) if isinstance(log, PgLog) else OffsetFeed(log))
    feed = EventFeed(
        reads,
        LogEntryBuilder(Codec(), FakeDocuments()),
        SingleGeneration(),
        get_no_status,
        poll_s=0.01,
        max_backlog=MAX_EVENTS_BEHIND,
    )
    server = UvicornServer(make_config(event_feed=feed))
    task = asyncio.create_task(server.serve())
    await eventually(lambda: server.started)
    # What a connection may hold in the kernel; those that are accepted take it over.
    server.servers[0].sockets[0].setsockopt(
        socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BUFFER_BYTES
    )
    made = StreamServerEnvironment(log, feed, reads, server, task)
    yield made
    await stop_server(made)


async def stop_server(world: StreamServerEnvironment) -> None:
    world.feed.close_streams()
    world.server.should_exit = True
    await world.serve_task


@dataclass
class StreamClient:
    """A client of server-sent events."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    messages: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    async def open(cls, port: int, **headers: str) -> StreamClient:
        reader, writer = await asyncio.open_connection(
            sock=open_small_buffer_socket(port), limit=SOCKET_BUFFER_BYTES
        )
        lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        writer.write(
            f"GET /v1/stream?topics=queries HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n".encode()
        )
        return cls(reader, writer)

    async def read_until(self, enough: Callable[[dict[str, Any]], bool]) -> None:
        """Read messages until `enough` accepts one."""
        message: dict[str, Any] = {}
        async with asyncio.timeout(60):
            while True:
                name, _, value = (await self.reader.readline()).decode().strip().partition(": ")
                if name in ("id", "event", "data"):
                    message[name] = json.loads(value) if name == "data" else value
                elif not name and message:  # A blank line dispatches the message.
                    self.messages.append(message)
                    if enough(message):
                        return
                    message = {}

    async def close(self) -> None:
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()

    def get_event_numbers(self) -> list[int]:
        return [
            int(one["event"].removeprefix("kind").removesuffix(".v1"))
            for one in self.messages
            if one["event"].startswith("kind")
        ]

    def count_missed(self) -> int:
        return sum(one["data"]["missed"] for one in self.messages if one["event"] == "dropped")


def match_event_number(number: int) -> Callable[[dict[str, Any]], bool]:
    return lambda message: message["event"] == f"kind{number}.v1"


async def open_stalled_client(world: StreamServerEnvironment) -> StreamClient:
    """Open a stream whose client reads only the first message, and wait until it stalls."""
    others = len(world.find_stalled_connections())
    reader = await StreamClient.open(world.port)
    await reader.read_until(lambda message: message["event"] == "open")

    async def publish_and_count_stalled() -> int:
        await world.publish_events(50)
        return len(world.find_stalled_connections())

    await eventually(publish_and_count_stalled, lambda stalled: stalled > others)
    return reader


async def test_stalled_client_is_bounded_and_learns_what_it_missed(
    world: StreamServerEnvironment,
) -> None:
    slow = await open_stalled_client(world)
    [connection] = world.find_stalled_connections()
    reads = world.counting_feed.n_reads
    await world.publish_events(2000)
    quick = await StreamClient.open(world.port, Last_Event_ID=slow.messages[0]["id"])
    await quick.read_until(lambda message: message["event"] == "dropped")
    assert (
        world.counting_feed.n_reads > reads + 2
        and connection in world.find_stalled_connections()
        and connection.transport.get_write_buffer_size() < 2 * 65_536
    )
    await slow.read_until(lambda message: message["event"] == "dropped")
    await world.publish_events(1)
    await slow.read_until(match_event_number(world.n_published - 1))
    numbers = slow.get_event_numbers()
    assert (
        numbers == sorted(set(numbers)) and len(numbers) + slow.count_missed() == world.n_published
    )
    assert len(numbers) <= 50 + 4 * PAGE_SIZE, "what it was told is what was under way"
    dropped = next(one for one in slow.messages if one["event"] == "dropped")
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{world.port}") as http:
        page = (
            await http.get(
                "/v1/events",
                params={"after": dropped["data"]["after"], "topics": "queries", "limit": 1},
            )
        ).json()
    assert page["items"][0]["type"] == f"kind{numbers[-2] + 1}.v1", "and can be read all the same"
    for reader in (slow, quick):
        await reader.close()


async def test_stalled_client_reconnects_after_last_event_id(
    world: StreamServerEnvironment,
) -> None:
    world.feed.max_backlog = 100_000
    slow = await open_stalled_client(world)
    await slow.read_until(match_event_number(20))
    await slow.close()
    again = await StreamClient.open(world.port, Last_Event_ID=slow.messages[-1]["id"])
    await again.read_until(match_event_number(world.n_published - 1))
    assert (
        slow.get_event_numbers() + again.get_event_numbers() == list(range(world.n_published))
        and not again.count_missed()
    )
    await again.close()


async def test_server_stops_while_a_client_is_stalled(world: StreamServerEnvironment) -> None:
    slow = [await open_stalled_client(world) for _ in range(2)]
    await stop_server(world)
    assert world.feed.open_streams == 0 and not world.server.server_state.connections
    for reader in slow:
        await reader.close()
