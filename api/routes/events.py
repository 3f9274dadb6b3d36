"""The log as it grows, and one document's way through it."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Header, Query
from fastapi.responses import StreamingResponse

from api.access import Caller, Limit, Use
from api.feeds import LogPage, Told
from api.streaming import MEDIA_TYPE, event
from schemas.errors import Forbidden, InvalidRequest, NotFound
from schemas.moments import Moment
from schemas.principals import Principal
from streams.topics import CONTROL, partition_counts

router = APIRouter(tags=["events"])
Topics = Annotated[str | None, Query(max_length=512, description="only these, separated by commas; without prefix or generation")]
Place = Annotated[str | None, Query(max_length=8192, description="a place that was told: `next`, or the id of a message; `begin` or `now`")]
Document = Annotated[UUID | None, Query(description="only what the log says of this document behind the door")]
Since = Annotated[Moment | None, Query(description="only what was appended then or later; UTC where no zone is given")]
RETRY_MS = 1000
MESSAGES = """Server-sent events, each with one line of JSON; its `id` is a place for `Last-Event-ID` or `after`:

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
STREAMED: dict[int | str, dict[str, Any]] = {200: {"content": {MEDIA_TYPE: {"schema": {"type": "string", "description": MESSAGES}}}}}


@router.get("/events", operation_id="list_events")
async def events(
    use: Use, caller: Caller, after: Place = "begin", topics: Topics = None, document: Document = None, since: Since = None, limit: Limit = 100
) -> LogPage:
    """Facts in the log, in the order in which they are read, from a place on. For polling: ask again with `after` = `next`."""
    return await use.feed.page(caller, after=after or "begin", topics=_names(topics, caller), document=document, limit=limit, since=since)


@router.get("/documents/{document}/events", operation_id="document_events")
async def document_events(document: UUID, use: Use, caller: Caller, after: Annotated[int, Query(ge=0, le=2**31 - 1)] = 0, limit: Limit = 500) -> dict[str, Any]:
    """What each stage did with each revision, in every generation: attempts, place in the log, start, duration, and why it failed. `after` counts lines."""
    items, following = await use.feed.of_document(caller, document, after=after, limit=limit)
    if not items and not after:
        raise NotFound(f"no document {document}", remedy="GET /v1/documents lists them.")
    return {"items": items, "next": following}


@router.get("/stream", operation_id="stream", response_class=StreamingResponse, responses=STREAMED)
async def stream(
    use: Use,
    caller: Caller,
    after: Place = None,
    topics: Topics = None,
    document: Document = None,
    last_event_id: Annotated[str | None, Header(max_length=8192)] = None,
) -> StreamingResponse:
    """The log as it grows, as server-sent events: from now on, or from a place on. One connection is enough for many views: browsers allow six to a server."""
    told = use.feed.follow(caller, after=last_event_id or after, topics=_names(topics, caller), document=document)
    opened = await anext(told)
    return StreamingResponse(_written(opened, told), media_type=MEDIA_TYPE, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})


async def _written(opened: Told, told: AsyncGenerator[Told, None]) -> AsyncIterator[str]:
    async with aclosing(told):
        yield f"retry: {RETRY_MS}\n{_message(opened)}"
        async for message in told:
            yield _message(message)


def _message(told: Told) -> str:
    place = f"id: {told.cursor}\n" if told.cursor else ""
    return place + event(told.event, json.dumps(told.data, ensure_ascii=False, default=str))


def _names(topics: str | None, caller: Principal) -> list[str] | None:
    """Raises InvalidRequest for a topic that there is not, Forbidden for decisions where the caller is no operator: they cross tenants."""
    names = [name.strip() for name in topics.split(",") if name.strip()] if topics else None
    unknown = sorted(set(names or ()) - set(partition_counts(1)))
    if unknown:
        raise InvalidRequest(f"no topic {', '.join(unknown)}", remedy=f"The topics are {', '.join(partition_counts(1))}.")
    if caller.has_role("operator"):
        return names
    if names and CONTROL in names:
        raise Forbidden(f"Topic {CONTROL} is for the role 'operator'.", code="FORBIDDEN_ROLE", remedy="Leave it out; GET /v1/audit lists the tenant's acts.")
    return names or [topic for topic in partition_counts(1) if topic != CONTROL]
