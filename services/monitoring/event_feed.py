"""Read the log as it grows: in pages of entries, or as a stream that ends when the server stops."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from processors import TOPICS
from schemas.errors import AnabranchError, CursorAhead, TransientError
from schemas.event_feed import EventBucket, EventCounts, FeedFilter, FeedMessage, LogEntry, LogPage
from schemas.events import EventData
from schemas.ids import parse_uuid
from schemas.ports.feed import FeedRecord, RecordFeed
from schemas.principals import Principal
from schemas.topics import CONTROL, RAW, StoredRecord, get_base_topic
from sql.catalog.documents import PgDocuments
from sql.index.generations import PgGenerations
from streams.codec import DEFAULT_TENANT, Codec
from streams.dead_letters import guess_producer_attributes, resolve_tenant

PAYLOAD_TOPICS = frozenset(topic for topic in TOPICS if topic.payload_in_feed)


@dataclass(frozen=True, slots=True)
class LogEntryBuilder:
    codec: Codec
    documents: PgDocuments

    async def build_entries(
        self, records: Sequence[FeedRecord], caller: Principal, document: UUID | None
    ) -> list[tuple[FeedRecord, LogEntry | None]]:
        """Pair each record with its entry.

        A caller limited to readers sees only entries of documents that it may read.
        """
        entries = [
            (record, await self.build_entry(record, caller.tenant, document)) for record in records
        ]
        if caller.readers is None:
            return entries
        document_ids = {entry.document_id for _, entry in entries if entry and entry.document_id}
        readable_ids = await self.documents.filter_readable(caller, document_ids)
        return [
            (record, entry if entry is not None and entry.document_id in readable_ids else None)
            for record, entry in entries
        ]

    async def build_entry(
        self, record: FeedRecord, tenant: str, document: UUID | None
    ) -> LogEntry | None:
        """Return None for records of other tenants, or of other documents than the given one."""
        stored = record.stored_record
        headers = {
            name: value.decode(errors="replace") for name, value in stored.record.headers.items()
        }
        record_tenant = resolve_tenant(stored)
        record_document = parse_uuid(headers.get("ce_document"))
        if record_tenant not in (None, tenant) or (
            document is not None and record_document != document
        ):
            return None
        event_id, source, event_type = guess_producer_attributes(stored.record)
        data = await self._decode_data(stored)
        # No tenant in the headers: a decision. Those about generations concern every tenant.
        if record_tenant is None and not (event_type or "").startswith("generation."):
            # Decisions about sources name their tenant; the default is the default tenant.
            payload = data or {}
            named = payload.get("source")
            decision_tenant = payload.get("tenant") or (
                named.get("tenant") if isinstance(named, dict) else None
            )
            if str(decision_tenant or DEFAULT_TENANT) != tenant:
                return None
        return LogEntry(
            cursor=record.cursor,
            topic=stored.position.topic,
            partition=stored.position.partition,
            offset=stored.position.offset,
            key=stored.record.key.decode(errors="replace")
            if stored.record.key is not None
            else None,
            type=event_type,
            id=event_id,
            source=source,
            time=headers.get("ce_time"),
            appended_at=stored.appended_at.isoformat(),
            tenant=record_tenant,
            document_id=record_document,
            cause=headers.get("ce_causationid"),
            how=headers.get("ce_how"),
            bytes=record.size_bytes,
            data=data,
        )

    async def _decode_data(self, stored: StoredRecord) -> dict[str, Any] | None:
        if (
            get_base_topic(stored.position.topic) not in PAYLOAD_TOPICS
            or stored.record.value is None
        ):
            return None
        try:
            event: EventData = (await self.codec.decode(stored)).data
            return event.model_dump(mode="json", exclude_none=True)
        except TransientError:
            raise
        # It stays in the list, so that the feed shows no gap.
        except AnabranchError as error:
            return {"unreadable": error.detail}


PAGE_SIZE = 200
MAX_BACKLOG = 2_000
"""A stream further behind reports the number of missed events and continues from now."""
MAX_COUNTED = 1_000_000
"""Larger counts of missed events are reported as a lower bound."""
MAX_SCANNED = 5_000
"""Events that one page inspects for matching ones."""
IDLE_S = 15.0
BUSY_S, BUSY_POLL_S = 3.0, 0.1  # after a message: another one follows soon
EVENT_TYPE = re.compile(r"[\w.\-]+\.v\d+", re.ASCII)
MAX_STREAMS = 64


FetchStatus = Callable[[Principal, UUID], Awaitable[dict[str, Any] | None]]


@dataclass(slots=True)
class EventFeed:
    """Read pages and streams of the log.

    Each stream reads from its own cursor, so that a slow client holds one page and blocks no other.
    """

    feed: RecordFeed
    entries: LogEntryBuilder
    generations: PgGenerations
    fetch_status: FetchStatus
    poll_s: float = 0.5
    max_backlog: int = MAX_BACKLOG
    max_streams: int = MAX_STREAMS
    open_by_tenant: Counter[str] = field(default_factory=Counter)
    closing: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def open_streams(self) -> int:
        return self.open_by_tenant.total()

    def close_streams(self) -> None:
        """End every stream with a `bye` message."""
        self.closing.set()

    async def read_page(
        self,
        caller: Principal,
        events: FeedFilter,
        *,
        after: str,
        limit: int,
        since: datetime | None = None,
    ) -> LogPage:
        """Read a page after a cursor, `begin` or `now`.

        Events appended before `since` are skipped.
        """
        topics = await self._expand_topics(events.topics)
        cursor = await self._resolve_cursor(after, topics)
        missed, at_least, scanned_count = 0, False, 0
        items: list[LogEntry] = []
        while len(items) < limit and scanned_count < MAX_SCANNED:
            batch = await self.feed.read_page(cursor, topics, min(PAGE_SIZE, limit - len(items)))
            cursor, scanned_count = batch.cursor, scanned_count + len(batch.records)
            missed, at_least = missed + batch.missed_count, at_least or batch.missed_is_lower_bound
            eligible = [
                record
                for record in batch.records
                if since is None or record.stored_record.appended_at >= since
            ]
            items += [
                entry
                for _, entry in await self.entries.build_entries(eligible, caller, events.document)
                if entry is not None
            ]
            if not batch.records:
                return LogPage(items=items, next=cursor, end=True, missed=missed, at_least=at_least)
        return LogPage(items=items, next=cursor, end=False, missed=missed, at_least=at_least)

    async def count_events(
        self,
        caller: Principal,
        topics: Sequence[str],
        *,
        since: datetime,
        until: datetime,
        bucket_s: int,
    ) -> EventCounts:
        """Count the tenant's events by time, for an operator also those of no tenant."""
        buckets: dict[datetime, Counter[str]] = {}
        for tenant, group_topics in _group_by_tenant(caller, topics).items():
            for event_count in await self.feed.count_by_time(
                await self._expand_topics(group_topics),
                since=since,
                until=until,
                bucket_s=bucket_s,
                tenant=tenant,
            ):
                counts = buckets.setdefault(event_count.start, Counter())
                counts[get_base_topic(event_count.topic)] += event_count.count
        return EventCounts(
            bucket_seconds=bucket_s,
            items=[
                EventBucket(start=start, counts=dict(sorted(counts.items())))
                for start, counts in sorted(buckets.items())
            ],
        )

    async def follow(
        self, caller: Principal, events: FeedFilter, *, after: str | None
    ) -> AsyncGenerator[FeedMessage, None]:
        """Stream messages after a cursor until the server stops; `open` comes first.

        Starts at the current end when `after` is None or, after a `reset` message, when it belongs
        to another log. With a document, its status is included whenever it changes.
        """
        # The last quarter is left to other tenants.
        own = self.open_by_tenant[caller.tenant]
        own_limit = self.max_streams - self.max_streams // 4
        if self.open_streams >= self.max_streams or own >= own_limit:
            raise TransientError(
                f"The limit of {own_limit} open streams of a tenant, or of all, is reached.",
                code="TOO_MANY_STREAMS",
                remedy="Close a stream, or poll GET /v1/events.",
            )
        # No await since the check above, so no stream can slip in between.
        self.open_by_tenant[caller.tenant] += 1
        try:
            topics = await self._expand_topics(events.topics)
            reset: FeedMessage | None = None
            try:
                cursor = await self._resolve_cursor(after or "now", topics)
            except CursorAhead as error:
                cursor = await self.feed.fetch_end_cursor(topics)
                reset = _build_reset_message(error, after or "now", cursor)
            yield FeedMessage(event="open", data={"after": cursor}, cursor=cursor)
            if reset:
                yield reset
            feed_stream = _FeedStream(self, caller, events, cursor)
            while not self.closing.is_set():
                # Close the inner generator at once when the client disconnects.
                async with aclosing(feed_stream.read_messages()) as step:
                    async for message in step:
                        yield message
                        if self.closing.is_set():
                            break
                if not feed_stream.has_more:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(feed_stream.pause_s):
                            await self.closing.wait()
            yield FeedMessage(event="bye", data={})
        finally:
            self.open_by_tenant -= Counter([caller.tenant])

    async def _resolve_cursor(self, after: str, topics: Sequence[str]) -> str:
        if after == "now":
            return await self.feed.fetch_end_cursor(topics)
        cursor = await self.feed.fetch_begin_cursor() if after == "begin" else after
        await self.feed.count_following(cursor, topics, 1)  # raises for an invalid cursor
        return cursor

    async def _expand_topics(self, topics: Sequence[str] | None) -> list[str]:
        """Add the topics that generations own."""
        bases = list(topics or TOPICS)
        generation_topics = [
            generation.topics.get(base, base)
            for generation in await self.generations.fetch_undropped()
            for base in bases
        ]
        return list(dict.fromkeys([*bases, *generation_topics]))


def _group_by_tenant(caller: Principal, topics: Sequence[str]) -> dict[str | None, list[str]]:
    """Return the topics to count by tenant; None stands for all.

    Records of `raw` and of decisions have no header with a tenant. Only operators may count them.
    """
    untenanted_topics = [topic for topic in topics if topic in (RAW, CONTROL)]
    tenant_topics = [topic for topic in topics if topic not in untenanted_topics]
    groups: dict[str | None, list[str]] = {caller.tenant: tenant_topics} if tenant_topics else {}
    if untenanted_topics and caller.has_role("operator"):
        groups[None] = untenanted_topics
    return groups


class _FeedStream:
    """State of one stream."""

    def __init__(self, feed: EventFeed, caller: Principal, events: FeedFilter, cursor: str) -> None:
        self._feed, self._caller, self._events, self._cursor = feed, caller, events, cursor
        self._last_status, self._idle_s = "", 0.0
        self.has_more = False
        """Another page is available now."""

    @property
    def pause_s(self) -> float:
        poll_s = self._feed.poll_s
        return min(BUSY_POLL_S, poll_s) if self._idle_s < BUSY_S else poll_s

    async def read_messages(self) -> AsyncGenerator[FeedMessage, None]:
        """Yield one page of messages. An error is reported, and the next call retries."""
        self._idle_s += self.pause_s
        try:
            async with aclosing(self._read_page()) as messages:
                async for message in messages:
                    self._idle_s = 0.0
                    yield message
        except AnabranchError as error:
            self._idle_s, self.has_more = 0.0, False
            yield FeedMessage(event="error", data=error.to_dict())
        if self._idle_s >= IDLE_S:
            self._idle_s = 0.0
            # Lets a client that receives nothing resume from a recent cursor.
            yield FeedMessage(event="idle", data={}, cursor=self._cursor)

    async def _read_page(self) -> AsyncGenerator[FeedMessage, None]:
        """The cursor advances with each message, so that no failure skips or repeats one."""
        # Expanded again for each page: a new generation may have topics of its own.
        feed, topics = self._feed.feed, await self._feed._expand_topics(self._events.topics)
        try:
            page = await feed.read_page(self._cursor, topics, PAGE_SIZE)
        except CursorAhead as error:
            previous_cursor, self._cursor = self._cursor, await feed.fetch_end_cursor(topics)
            yield _build_reset_message(error, previous_cursor, self._cursor)
            return
        if page.missed_count:
            yield _build_dropped_message(
                page.missed_count, page.missed_is_lower_bound, self._cursor, page.start_cursor
            )
            self._cursor = page.start_cursor
        for record, entry in await self._feed.entries.build_entries(
            page.records, self._caller, self._events.document
        ):
            # Before the message: after an error the next call continues behind it.
            self._cursor = record.cursor
            if entry is not None:
                # A producer's type must look like ours, so that it cannot end the line or imitate a
                # control message.
                name = entry.type if EVENT_TYPE.fullmatch(entry.type or "") else None
                data = entry.model_dump(mode="json")
                yield FeedMessage(event=name or "unreadable", data=data, cursor=record.cursor)
            if self._feed.closing.is_set():
                return
        self._cursor, self.has_more = page.cursor, page.has_more
        if self.has_more and (skipped := await self._skip_backlog(topics)):
            yield skipped
        if self._events.document is None:
            return
        status = await self._feed.fetch_status(self._caller, self._events.document)
        text = json.dumps(status, default=str)
        if status is not None and text != self._last_status:
            self._last_status = text
            yield FeedMessage(event="status", data=json.loads(text))

    async def _skip_backlog(self, topics: Sequence[str]) -> FeedMessage | None:
        """Continue from now if the backlog is too large."""
        feed, previous_cursor = self._feed.feed, self._cursor
        if (
            await feed.count_following(previous_cursor, topics, self._feed.max_backlog + 1)
            <= self._feed.max_backlog
        ):
            return None
        now = await feed.fetch_end_cursor(topics)
        backlog = await feed.count_following(previous_cursor, topics, MAX_COUNTED)
        # What arrived after `now` is not missed: the stream continues there.
        missed = backlog - await feed.count_following(now, topics, MAX_COUNTED)
        # The client may have stalled here for long, and retention may have removed records
        # meanwhile.
        first_page = await feed.read_page(previous_cursor, topics, 0)
        self._cursor = now
        return _build_dropped_message(
            missed + first_page.missed_count,
            first_page.missed_is_lower_bound or backlog >= MAX_COUNTED,
            previous_cursor,
            now,
        )


def _build_dropped_message(missed: int, at_least: bool, after: str, cursor: str) -> FeedMessage:
    return FeedMessage(
        event="dropped",
        data={"missed": missed, "at_least": at_least, "after": after},
        cursor=cursor,
    )


def _build_reset_message(error: CursorAhead, after: str, now: str) -> FeedMessage:
    return FeedMessage(event="reset", data={**error.to_dict(), "after": after}, cursor=now)
