"""`Client` and `AsyncClient`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import IO, Any, Concatenate, ParamSpec, TypeVar, Unpack, cast
from uuid import UUID

from anabranch.client import calls
from anabranch.client.calls import Call, Pages, StreamEvent
from anabranch.http_transport import AsyncTransport, Request, SyncTransport
from schemas.event_feed import LogEntry, LogPage
from schemas.events.control import Scope
from schemas.ingest import IngestReceipt
from schemas.judgements import FeedbackReceipt
from schemas.questions import QueryResponse, SearchResponse
from schemas.responses import Document, ErasureReceipt, JobStatus, Page, RunSummary

WAIT_S = 300.0
P = ParamSpec("P")
T = TypeVar("T")
File = str | Path | bytes | IO[bytes]


class Client(SyncTransport):
    """Calls the HTTP API. Use it as a context manager, or `close()` it. Safe to share by threads.

    Keyword arguments of a call are the fields of its request. Every call raises ApiError.
    """

    def ingest(
        self,
        file: File | None = None,
        *,
        idempotency_key: str | None = None,
        **options: Unpack[calls.IngestOptions],
    ) -> IngestReceipt:
        """Ingest a file (a path, bytes, or an open file), or else `text`, `url` or `storage_key`.

        Returns once the document is durable; `wait` waits until it is searchable.
        """
        return self._run(calls.ingest(self, file, idempotency_key, **options))

    def wait(self, job: IngestReceipt | UUID | str, *, timeout_s: float = WAIT_S) -> JobStatus:
        """Wait until the document is searchable, superseded or withdrawn.

        Raises ApiError with the error of its stage if it failed.
        """
        return self._run(calls.wait(self, job, timeout_s))

    def search(self, query: str, **options: Unpack[calls.SearchOptions]) -> SearchResponse:
        """Return ranked passages, with `return_text=True` their whole texts."""
        return self._run(
            calls.post(self, SearchResponse, "/v1/search", {"query": query, **options})
        )

    def query(self, query: str, **options: Unpack[calls.QueryOptions]) -> QueryResponse:
        """Return an answer with citations, or a refusal (`refused`, `code`, `message`)."""
        return self._run(calls.post(self, QueryResponse, "/v1/query", {"query": query, **options}))

    def stream(self, query: str, **options: Unpack[calls.QueryOptions]) -> Iterator[StreamEvent]:
        """Yield steps and words of the draft, and last the verified answer.

        Closing the iterator cancels the question.
        """
        event = None
        for name, data in self.stream_events(calls.stream(query, **options)):
            if event := calls.parse_stream_event(self, name, data):
                yield event
        calls.check_answered(event)

    def feedback(self, **options: Unpack[calls.FeedbackOptions]) -> FeedbackReceipt:
        """Judge the answer of `run_id`, or passages for any `query`."""
        return self._run(calls.post(self, FeedbackReceipt, "/v1/feedback", options))

    def documents(self, **options: Unpack[calls.DocumentOptions]) -> Iterator[Document]:
        """Yield the documents that match, the latest first; pages are fetched as needed."""
        return self._iterate(calls.list_pages("/v1/documents", Page[Document], options))

    def runs(self, **options: Unpack[calls.RunOptions]) -> Iterator[RunSummary]:
        """Yield recorded questions, the latest first."""
        names = {"since": "from", "until": "to"}
        parameters = {names.get(name, name): value for name, value in options.items()}
        return self._iterate(calls.list_pages("/v1/runs", Page[RunSummary], parameters))

    def events(
        self, after: str = "begin", **options: Unpack[calls.EventOptions]
    ) -> Iterator[LogEntry]:
        """Yield the events of the log up to its end, from a `cursor`, `begin` or `now`."""
        page = cast(type[Page[LogEntry]], LogPage)
        return self._iterate(calls.list_pages("/v1/events", page, {"after": after, **options}))

    def erase(
        self, name: UUID | str, *, scope: Scope = "document", timeout_s: float = WAIT_S
    ) -> ErasureReceipt:
        """Erase a document, collection, fact or tenant permanently, and wait for the receipt."""
        return self._run(calls.erase(self, name, scope, timeout_s))

    def _run(self, call: Call[T]) -> T:
        reply: Any = None
        try:
            while True:
                step = call.send(reply)
                if isinstance(step, Request):
                    reply = self.send(step)
                else:
                    time.sleep(step)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        finally:
            call.close()

    def _iterate(self, pages: Pages[T]) -> Iterator[T]:
        after: str | None = ""
        while after is not None:
            items, after = self._run(pages(self, after))
            yield from items


def _awaited(
    method: Callable[Concatenate[Client, P], T],
) -> Callable[Concatenate[AsyncClient, P], Awaitable[T]]:
    """Type a call for AsyncClient, whose `_run` returns an awaitable."""
    return cast(Any, method)  # type: ignore[no-any-return]


def _iterated(
    method: Callable[Concatenate[Client, P], Iterator[T]],
) -> Callable[Concatenate[AsyncClient, P], AsyncIterator[T]]:
    """Type a list for AsyncClient, whose `_iterate` is asynchronous."""
    return cast(Any, method)  # type: ignore[no-any-return]


class AsyncClient(AsyncTransport):
    """`Client` for asyncio: the same calls, awaited, or iterated with `async for`."""

    ingest = _awaited(Client.ingest)
    wait = _awaited(Client.wait)
    search = _awaited(Client.search)
    query = _awaited(Client.query)
    feedback = _awaited(Client.feedback)
    erase = _awaited(Client.erase)
    documents = _iterated(Client.documents)
    runs = _iterated(Client.runs)
    events = _iterated(Client.events)

    async def stream(
        self, query: str, **options: Unpack[calls.QueryOptions]
    ) -> AsyncIterator[StreamEvent]:
        event = None
        async for name, data in self.stream_events(calls.stream(query, **options)):
            if event := calls.parse_stream_event(self, name, data):
                yield event
        calls.check_answered(event)

    async def _run(self, call: Call[T]) -> T:
        reply: Any = None
        try:
            while True:
                step = call.send(reply)
                if isinstance(step, Request):
                    reply = await self.send(step)
                else:
                    await asyncio.sleep(step)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        finally:
            call.close()

    async def _iterate(self, pages: Pages[T]) -> AsyncIterator[T]:
        after: str | None = ""
        while after is not None:
            items, after = await self._run(pages(self, after))
            for item in items:
                yield item
