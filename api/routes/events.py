"""The log as it grows, and one document's way through it."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Header, Query
from fastapi.responses import StreamingResponse

from api.dependencies import Caller, PageLimit, ServicesDep
from api.sse import MEDIA_TYPE, format_event
from schemas.errors import Forbidden, InvalidRequest, NotFound
from schemas.event_feed import FeedMessage, LogPage
from schemas.principals import Principal
from schemas.timestamps import Timestamp
from streams.topics import CONTROL, get_partition_counts

router = APIRouter(tags=["events"])
TopicsFilter = Annotated[str | None, Query(max_length=512, description="only these, separated by commas; without prefix or generation")]
CursorParameter = Annotated[str | None, Query(max_length=8192, description="a place that was told: `next`, or the id of a message; `begin` or `now`")]
DocumentFilter = Annotated[UUID | None, Query(description="only what the log says of this document behind the door")]
SinceFilter = Annotated[Timestamp | None, Query(description="only what was appended then or later; UTC where no zone is given")]
RETRY_MS = 1000
STREAM_DESCRIPTION = """Server-sent events, each with one line of JSON; its `id` is a place for `Last-Event-ID` or `after`:

| event | data |
| --- | --- |
| `open` | `{after}`: the place that is read from, at once |
| the type of a fact, such as `document.chunked.v1` | as in `GET /v1/events` |
| `unreadable` | the same, of a record whose type is missing or has no such form |
| `status` | with `document`: the body of `/v1/ingest/status`, at once and whenever it has changed |
| `dropped` | `{missed, at_least, after}`: so many events (or `at_least` so many) were passed over, since this reader was too far behind or the log no longer keeps them (`GET /v1/events?after=` has those that it keeps) |
| `reset` | `{code, detail, remedy, after}`: the place `after` is of another log: this one was restored or made anew since; goes on from now |
| `error` | a problem with the log or the tables; the stream goes on when it is over |
| `idle` | `{}`, every 15 s without news |
| `bye` | `{}`: the server stops; connect again |"""
STREAM_RESPONSES: dict[int | str, dict[str, Any]] = {200: {"content": {MEDIA_TYPE: {"schema": {"type": "string", "description": STREAM_DESCRIPTION}}}}}


@router.get("/events", operation_id="list_events")
async def list_events(
    services: ServicesDep,
    caller: Caller,
    after: CursorParameter = "begin",
    topics: TopicsFilter = None,
    document: DocumentFilter = None,
    since: SinceFilter = None,
    limit: PageLimit = 100,
) -> LogPage:
    """Facts in the log, in the order in which they are read, from a place on. For polling: ask again with `after` = `next`."""
    return await services.event_feed.read_page(
        caller, after=after or "begin", topics=_parse_topics(topics, caller), document=document, limit=limit, since=since
    )


@router.get("/documents/{document}/events", operation_id="document_events")
async def list_document_events(
    document: UUID, services: ServicesDep, caller: Caller, after: Annotated[int, Query(ge=0, le=2**31 - 1)] = 0, limit: PageLimit = 500
) -> dict[str, Any]:
    """What each stage did with each revision, in every generation: attempts, place in the log, start, duration, and why it failed. `after` counts lines."""
    items, next_cursor = await services.event_feed.list_document_events(caller, document, after=after, limit=limit)
    if not items and not after:
        raise NotFound(f"no document {document}", remedy="GET /v1/documents lists them.")
    return {"items": items, "next": next_cursor}


@router.get("/stream", operation_id="stream", response_class=StreamingResponse, responses=STREAM_RESPONSES)
async def stream_events(
    services: ServicesDep,
    caller: Caller,
    after: CursorParameter = None,
    topics: TopicsFilter = None,
    document: DocumentFilter = None,
    last_event_id: Annotated[str | None, Header(max_length=8192)] = None,
) -> StreamingResponse:
    """The log as it grows, as server-sent events: from now on, or from a place on. One connection is enough for many views: browsers allow six to a server."""
    messages = services.event_feed.follow(caller, after=last_event_id or after, topics=_parse_topics(topics, caller), document=document)
    first_message = await anext(messages)
    return StreamingResponse(
        _generate_messages(first_message, messages), media_type=MEDIA_TYPE, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    )


async def _generate_messages(first_message: FeedMessage, messages: AsyncGenerator[FeedMessage, None]) -> AsyncIterator[str]:
    async with aclosing(messages):
        yield f"retry: {RETRY_MS}\n{_format_message(first_message)}"
        async for message in messages:
            yield _format_message(message)


def _format_message(message: FeedMessage) -> str:
    id_line = f"id: {message.cursor}\n" if message.cursor else ""
    return id_line + format_event(message.event, json.dumps(message.data, ensure_ascii=False, default=str))


def _parse_topics(topics: str | None, caller: Principal) -> list[str] | None:
    """Raises InvalidRequest for a topic that there is not, Forbidden for decisions where the caller is no operator: they cross tenants."""
    topic_names = [name.strip() for name in topics.split(",") if name.strip()] if topics else None
    unknown = sorted(set(topic_names or ()) - set(get_partition_counts(1)))
    if unknown:
        raise InvalidRequest(f"no topic {', '.join(unknown)}", remedy=f"The topics are {', '.join(get_partition_counts(1))}.")
    if caller.has_role("operator"):
        return topic_names
    if topic_names and CONTROL in topic_names:
        raise Forbidden(f"Topic {CONTROL} is for the role 'operator'.", code="FORBIDDEN_ROLE", remedy="Leave it out; GET /v1/audit lists the tenant's acts.")
    return topic_names or [topic for topic in get_partition_counts(1) if topic != CONTROL]
