"""Events: the log as pages and as a stream, and the processing history of a document."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Header, Query
from fastapi.responses import StreamingResponse
from pydantic import Field

from api.operations import OperationRoute, operation
from api.services import Caller, PageLimit, ServicesDep, WholeTenant
from api.sse import MEDIA_TYPE, format_event, stream_messages
from processors import TOPICS
from schemas.errors import Forbidden, InvalidRequest, unknown_document_error
from schemas.event_feed import EventCounts, FeedFilter, FeedMessage, LogPage
from schemas.principals import Principal
from schemas.responses import NumberedPage, StageStatus
from schemas.timestamps import Timestamp, utc_now
from schemas.topics import CONTROL

router = APIRouter(route_class=OperationRoute, tags=["events"])
TopicsFilter = Annotated[
    str | None,
    Query(max_length=512, description="Comma-separated topics, without prefix and generation."),
]
CursorParameter = Annotated[
    str | None,
    Query(
        max_length=8192,
        description="A cursor returned by this API (`next`, or a message id), `begin` or `now`.",
    ),
]
DocumentFilter = Annotated[
    UUID | None, Query(description="Only events of this document, after ingress.")
]
SinceFilter = Annotated[
    Timestamp | None,
    Query(description="Only events appended at this time or later. UTC unless a zone is given."),
]
RETRY_MS = 1000
BUCKET_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400}
MAX_BUCKETS = 1_500
STREAM_DESCRIPTION = """Server-sent events, each with one line of JSON; its `id` is a cursor for \
`Last-Event-ID` or `after`:

| event | data |
| --- | --- |
| `open` | `{after}`: the start cursor, sent first |
| an event type, such as `document.chunked.v1` | as in `GET /v1/events` |
| `unreadable` | the same, for a record whose type is missing or malformed |
| `status` | with `document`: the body of `/v1/ingest/status`, at the start and on every change |
| `dropped` | `{missed, at_least, after}`: number of events skipped (a lower bound with \
`at_least`), because the client is too slow or retention has deleted them; get \
those that remain with `GET /v1/events?after=` |
| `reset` | `{code, detail, remedy, after}`: the cursor `after` belongs to another log, since this \
one was restored or recreated; the stream continues from now |
| `error` | a problem with the log or the database; the stream continues when it is resolved |
| `idle` | `{}`, every 15 s without events |
| `bye` | `{}`: the server stops; reconnect |"""
STREAM_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "content": {MEDIA_TYPE: {"schema": {"type": "string", "description": STREAM_DESCRIPTION}}}
    }
}


class StageEvent(StageStatus):
    """Work of a stage on one part of one revision, in one generation."""

    revision: int | None = Field(description="Null for an event that ingress refused.")
    generation: str | None = Field(description="Null at ingress, which all generations share.")
    part: int


@router.get("/events", operation_id="list_events")
@operation("reader")
async def list_events(
    services: ServicesDep,
    caller: Caller,
    after: CursorParameter = "begin",
    topics: TopicsFilter = None,
    document: DocumentFilter = None,
    since: SinceFilter = None,
    limit: PageLimit = 100,
) -> LogPage:
    """List events in the log after a cursor. To poll, repeat with `after` = `next`."""
    return await services.event_feed.read_page(
        caller,
        FeedFilter(_parse_topics(topics, caller), document),
        after=after or "begin",
        limit=limit,
        since=since,
    )


@router.get("/events/counts", operation_id="count_events")
@operation("reader", problems="422 INVALID_REQUEST NO_EVENT_COUNTS")
async def count_events(
    services: ServicesDep,
    caller: WholeTenant,
    bucket: Literal["second", "minute", "hour", "day"] = "minute",
    since: Annotated[
        Timestamp | None, Query(alias="from", description="Default: 60 intervals before `to`.")
    ] = None,
    until: Annotated[Timestamp | None, Query(alias="to", description="Default: now.")] = None,
    topics: TopicsFilter = None,
) -> EventCounts:
    """Count the tenant's events on the log by time, for a histogram.

    Intervals without events are omitted. Events on `raw` and `control` name no tenant: they are
    counted for operators only. A log on Kafka has no counts (422, `NO_EVENT_COUNTS`).
    """
    bucket_s = BUCKET_SECONDS[bucket]
    end = until or utc_now()
    start = since or end - timedelta(seconds=60 * bucket_s)
    if (end - start).total_seconds() > MAX_BUCKETS * bucket_s:
        raise InvalidRequest(
            f"The time from {start.isoformat()} to {end.isoformat()} has more than {MAX_BUCKETS} "
            f"intervals of a {bucket}.",
            remedy="Choose longer intervals, or less time.",
        )
    return await services.event_feed.count_events(
        caller,
        _parse_topics(topics, caller) or list(TOPICS),
        since=start,
        until=end,
        bucket_s=bucket_s,
    )


@router.get(
    "/documents/{document}/events",
    operation_id="document_events",
    response_model_exclude_unset=True,
)
@operation("reader", problems="404 NOT_FOUND")
async def list_document_events(
    document: UUID,
    services: ServicesDep,
    caller: Caller,
    after: Annotated[int, Query(ge=0, le=2**31 - 1)] = 0,
    limit: PageLimit = 500,
) -> NumberedPage[StageEvent]:
    """List what each stage did with each revision, in every generation.

    Each line has attempts, log position, start, duration and error. `after` is the number of lines
    to skip.
    """
    page = await services.documents.list_document_events(caller, document, after=after, limit=limit)
    if not page[0] and not after:
        raise unknown_document_error(document)
    return NumberedPage[StageEvent].build(*page)


@router.get(
    "/stream", operation_id="stream", response_class=StreamingResponse, responses=STREAM_RESPONSES
)
@operation("reader")
async def stream_events(
    services: ServicesDep,
    caller: Caller,
    after: CursorParameter = None,
    topics: TopicsFilter = None,
    document: DocumentFilter = None,
    last_event_id: Annotated[str | None, Header(max_length=8192)] = None,
) -> StreamingResponse:
    """Stream events of the log as server-sent events, from now or after a cursor.

    Share one connection between views: browsers allow six per server.
    """
    messages = services.event_feed.follow(
        caller, FeedFilter(_parse_topics(topics, caller), document), after=last_event_id or after
    )
    return await stream_messages(messages, _format_message)


def _format_message(message: FeedMessage) -> bytes:
    return format_event(
        json.dumps(message.data, ensure_ascii=False, default=str),
        event=message.event,
        id=message.cursor or None,
        retry=RETRY_MS if message.event == "open" else None,
    )


def _parse_topics(topics: str | None, caller: Principal) -> list[str] | None:
    """Raises InvalidRequest for an unknown topic.

    Raises Forbidden for the control topic, which crosses tenants, unless the caller is an operator.
    """
    topic_names = [name.strip() for name in topics.split(",") if name.strip()] if topics else None
    unknown = sorted(set(topic_names or ()) - set(TOPICS))
    if unknown:
        raise InvalidRequest(
            f"Unknown topic {', '.join(unknown)}.", remedy=f"Available topics: {', '.join(TOPICS)}."
        )
    if caller.has_role("operator"):
        return topic_names
    if topic_names and CONTROL in topic_names:
        raise Forbidden(
            f"Topic {CONTROL} requires the role 'operator'.",
            code="FORBIDDEN_ROLE",
            remedy="Omit it; list the tenant's actions with GET /v1/audit.",
        )
    # Without a selection: every topic that the caller may read.
    return topic_names or [topic for topic in TOPICS if topic != CONTROL]
