"""The log as it grows, for people who watch: in pages, or as a stream that ends when the server stops."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from anabranch.desk.log_entries import Entries
from api.feeds import LogEntry, LogPage, Told
from schemas.errors import AnabranchError, PlaceAhead, TransientError
from schemas.ports.feed import Feed
from schemas.ports.ledger import Generations
from schemas.ports.search import Documents
from schemas.principals import Principal
from streams.topics import partition_counts

PAGE = 200
MOST_BEHIND = 2_000
"""Events that a reader may be behind; one who is further is told how many it missed, and goes on from now."""
COUNTED = 1_000_000
"""Of more missed events than that it is said that they are at least so many."""
SCANNED = 5_000
"""Events that one page looks at for those that are asked for."""
IDLE_S = 15.0
TYPE = re.compile(r"[\w.\-]+\.v\d+", re.ASCII)
MOST_STREAMS = 64


class DocumentEvents(Protocol):
    async def of_document(self, caller: Principal, document_id: UUID, *, after: int, limit: int) -> tuple[list[dict[str, Any]], int | None]: ...


Status = Callable[[Principal, UUID], Awaitable[dict[str, Any] | None]]


def status_of(documents: Documents) -> Status:
    """Of a document's latest revision."""

    async def status(caller: Principal, document_id: UUID) -> dict[str, Any] | None:
        return await documents.status(caller, document_id=document_id)

    return status


@dataclass(slots=True)
class EventFeed:
    """See `api.feeds.LogFeed`. Streams read the log themselves, each from its own place, so a slow reader holds one page in memory and nobody else up."""

    feed: Feed
    entries: Entries
    generations: Generations
    events: DocumentEvents
    status: Status
    poll_s: float = 0.5
    most_behind: int = MOST_BEHIND
    most_streams: int = MOST_STREAMS
    open: int = 0
    closing: asyncio.Event = field(default_factory=asyncio.Event)

    def stop(self) -> None:
        self.closing.set()

    async def of_document(self, caller: Principal, document_id: UUID, *, after: int, limit: int) -> tuple[list[dict[str, Any]], int | None]:
        return await self.events.of_document(caller, document_id, after=after, limit=limit)

    async def page(
        self, caller: Principal, *, after: str, topics: list[str] | None, document: UUID | None, limit: int, since: datetime | None = None
    ) -> LogPage:
        names = await self._topics(topics)
        place, missed, at_least, scanned = await self._place(after, names), 0, False, 0
        items: list[LogEntry] = []
        while len(items) < limit and scanned < SCANNED:
            found = await self.feed.read(place, names, min(PAGE, limit - len(items)))
            place, scanned = found.cursor, scanned + len(found.records)
            missed, at_least = missed + found.missed, at_least or found.at_least
            wanted = [record for record in found.records if since is None or record.stored.appended_at >= since]
            items += [entry for _, entry in await self.entries.readable(wanted, caller, document) if entry is not None]
            if not found.records:
                return LogPage(items=items, next=place, end=True, missed=missed, at_least=at_least)
        return LogPage(items=items, next=place, end=False, missed=missed, at_least=at_least)

    async def follow(self, caller: Principal, *, after: str | None, topics: list[str] | None, document: UUID | None) -> AsyncGenerator[Told, None]:
        if self.open >= self.most_streams:
            raise TransientError(
                f"{self.open} streams are open", code="TOO_MANY_STREAMS", remedy="Close one: a stream serves many views. Or poll GET /v1/events."
            )
        self.open += 1
        try:
            place, reset = await self._beginning(after or "now", await self._topics(topics))
            yield Told(event="open", data={"after": place}, cursor=place)
            if reset:
                yield reset
            reader = _Reader(self, caller, topics, document, place)
            while not self.closing.is_set():
                async with aclosing(reader.step()) as step:
                    async for told in step:
                        yield told
                        if self.closing.is_set():
                            break
                if not reader.hurried:
                    await self._pause()
            yield Told(event="bye", data={})
        finally:
            self.open -= 1

    async def _pause(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self.poll_s):
                await self.closing.wait()

    async def _beginning(self, after: str, topics: Sequence[str]) -> tuple[str, Told | None]:
        """A reader whose place is of another log goes on from now, and is told."""
        try:
            return await self._place(after, topics), None
        except PlaceAhead as error:
            now = await self.feed.now(topics)
            return now, _reset(error, after, now)

    async def _place(self, after: str, topics: Sequence[str]) -> str:
        if after == "now":
            return await self.feed.now(topics)
        place = await self.feed.first() if after == "begin" else after
        await self.feed.behind(place, topics, 1)  # refuses what is no place
        return place

    async def _topics(self, wanted: Sequence[str] | None) -> list[str]:
        """Each with those that generations of their own write."""
        bases = list(wanted or partition_counts(1))
        own = [generation.topics.get(base, base) for generation in await self.generations.undropped() for base in bases]
        return list(dict.fromkeys([*bases, *own]))


class _Reader:
    """Where one stream is."""

    def __init__(self, feed: EventFeed, caller: Principal, topics: Sequence[str] | None, document: UUID | None, place: str) -> None:
        self._feed, self._caller, self._wanted, self._document, self._place = feed, caller, topics, document, place
        self._status, self._quiet_s = "", 0.0
        self.hurried = False
        """More is there already."""

    async def step(self) -> AsyncGenerator[Told, None]:
        """What there is to tell, a page at most. Trouble is told, and over when it is."""
        self._quiet_s += self._feed.poll_s
        try:
            async with aclosing(self._news()) as news:
                async for told in news:
                    self._quiet_s = 0.0
                    yield told
        except AnabranchError as error:
            self._quiet_s, self.hurried = 0.0, False
            yield Told(event="error", data={"code": error.code, "detail": error.detail, "remedy": error.remedy})
        if self._quiet_s >= IDLE_S:
            self._quiet_s = 0.0
            yield Told(event="idle", data={}, cursor=self._place)

    async def _news(self) -> AsyncGenerator[Told, None]:
        """The place moves with what is told: whatever fails in between, nothing is passed over and nothing told again."""
        feed, topics = self._feed.feed, await self._feed._topics(self._wanted)
        try:
            page = await feed.read(self._place, topics, PAGE)
        except PlaceAhead as error:
            before, self._place = self._place, await feed.now(topics)
            yield _reset(error, before, self._place)
            return
        if page.missed:
            yield _dropped(page.missed, page.at_least, self._place, page.start)
            self._place = page.start
        for record, entry in await self._feed.entries.readable(page.records, self._caller, self._document):
            self._place = record.cursor
            if entry is not None:
                yield Told(event=_name(entry.type), data=entry.model_dump(mode="json"), cursor=record.cursor)
            if self._feed.closing.is_set():
                return
        self._place, self.hurried = page.cursor, page.more
        if self.hurried and (skipped := await self._skipped(topics)):
            yield skipped
        if (status := await self._changed_status()) is not None:
            yield status

    async def _skipped(self, topics: Sequence[str]) -> Told | None:
        """Go on from now where too much is waiting."""
        feed, before = self._feed.feed, self._place
        if await feed.behind(before, topics, self._feed.most_behind + 1) <= self._feed.most_behind:
            return None
        now = await feed.now(topics)
        counted = await feed.behind(before, topics, COUNTED)
        missed = counted - await feed.behind(now, topics, COUNTED)
        # It may have stood here for long, while others took in what it was told before.
        lost = await feed.read(before, topics, 0)
        self._place = now
        return _dropped(missed + lost.missed, lost.at_least or counted >= COUNTED, before, now)

    async def _changed_status(self) -> Told | None:
        if self._document is None:
            return None
        status = await self._feed.status(self._caller, self._document)
        text = json.dumps(status, default=str)
        if status is None or text == self._status:
            return None
        self._status = text
        return Told(event="status", data=json.loads(text))


def _name(event_type: str | None) -> str:
    """Of a message. What a producer calls its event stands there only in the form of a fact's type, so that it neither ends the line nor is taken for a
    message of ours."""
    return event_type if event_type is not None and TYPE.fullmatch(event_type) else "unreadable"


def _dropped(missed: int, at_least: bool, after: str, cursor: str) -> Told:
    return Told(event="dropped", data={"missed": missed, "at_least": at_least, "after": after}, cursor=cursor)


def _reset(error: PlaceAhead, after: str, now: str) -> Told:
    return Told(event="reset", data={"code": error.code, "detail": error.detail, "remedy": error.remedy, "after": after}, cursor=now)
