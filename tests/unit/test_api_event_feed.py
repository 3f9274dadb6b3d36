from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx2
import pytest

from api.app import create_app
from schemas.event_feed import FeedMessage
from tests.unit.api_fakes import DOCUMENT_ID, STAGE_BODY, MemoryFeed, make_services


@pytest.fixture
def feed() -> MemoryFeed:
    return MemoryFeed(
        [
            FeedMessage(event="document.chunked.v1", data={"topic": "chunked"}, cursor="7.1"),
            FeedMessage(event="status", data={"state": "running"}),
        ]
    )


@pytest.fixture
async def http(feed: MemoryFeed) -> AsyncIterator[httpx2.AsyncClient]:
    transport = httpx2.ASGITransport(
        create_app(make_services(event_feed=feed)), raise_app_exceptions=False
    )
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


async def test_event_stream_is_sse_with_cursor_ids(
    http: httpx2.AsyncClient, feed: MemoryFeed
) -> None:
    asyncio.get_running_loop().call_soon(feed.close_streams)
    response = await http.get("/v1/stream", headers={"Last-Event-ID": "6.0"})
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.text == (
        'event: open\ndata: {"after": "6.0"}\nid: 6.0\nretry: 1000\n\n'
        'event: document.chunked.v1\ndata: {"topic": "chunked"}\nid: 7.1\n\n'
        'event: status\ndata: {"state": "running"}\n\n'
        "event: bye\ndata: {}\n\n"
    )


async def test_since_outside_utc_range_is_rejected(http: httpx2.AsyncClient) -> None:
    response = await http.get("/v1/events", params={"since": "0001-01-01T00:00+14:00"})
    assert (response.status_code, response.json()["code"]) == (422, "INVALID_REQUEST")


async def test_unknown_topic_is_rejected(http: httpx2.AsyncClient) -> None:
    response = await http.get("/v1/events", params={"topics": "accepted,acepted"})
    assert (response.status_code, response.json()["detail"]) == (422, "Unknown topic acepted.")


async def test_event_page_starts_at_beginning_or_given_cursor(http: httpx2.AsyncClient) -> None:
    assert (await http.get("/v1/events")).json() == {
        "items": [],
        "next": "begin",
        "end": True,
        "missed": 0,
        "at_least": False,
    }
    assert (await http.get("/v1/events", params={"after": "7.1"})).json()["next"] == "7.1"


async def test_document_events_are_listed_and_unknown_document_is_404(
    http: httpx2.AsyncClient,
) -> None:
    assert (await http.get(f"/v1/documents/{DOCUMENT_ID}/events")).json()["items"] == [
        {**STAGE_BODY, "revision": 1, "generation": None, "part": 1}
    ]
    assert (
        await http.get("/v1/documents/00000000-0000-0000-0000-000000000001/events")
    ).status_code == 404
