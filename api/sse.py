"""Stream answers and messages as server-sent events (WHATWG HTML, section 9.2).

Work whose client no longer waits for it is ended.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import aclosing
from typing import Any, TypeVar

import httpx2
from fastapi import Request
from fastapi.responses import StreamingResponse
from fastapi.sse import format_sse_event
from starlette.requests import ClientDisconnect
from starlette.types import Receive

from api.problems import build_error_problem
from schemas.questions import AnswerDelta, OnProgress, Progress, QueryResponse

PING_INTERVAL_S = 15.0
MEDIA_TYPE = "text/event-stream"
EVENTS_DESCRIPTION = """With `stream`, server-sent events, each with one line of JSON:

| event | data |
| --- | --- |
| `started` | `{}`, at once |
| `step` | `{name, ms}`: a step starts (`ms` null) or has ended |
| `delta` | `{draft, text}`: unverified text of the answer while a chat model writes it; discard \
it when `draft` increases. Quoted answers send none |
| `answer` | the verified response, as without `stream`; the last event |
| `error` | a problem (RFC 9457), in place of `answer` |

Comments keep the connection open. Closing it cancels the query."""

WORKING = format_sse_event(comment="working")


def format_event(json_text: str, **fields: Any) -> bytes:
    """Format an event with one line of JSON."""
    # httpx2 splits lines here too. JSON has these characters only in strings.
    for separator in "\x85\u2028\u2029":
        json_text = json_text.replace(separator, f"\\u{ord(separator):04x}")
    return format_sse_event(data_str=json_text, **fields)


RunQuery = Callable[[OnProgress], Awaitable[QueryResponse]]
MessageT = TypeVar("MessageT")


async def stream_messages(
    messages: AsyncGenerator[MessageT, None], format_message: Callable[[MessageT], bytes]
) -> StreamingResponse:
    """Stream messages from the first one on.

    Errors before it become a problem response, since the status line is not sent yet. A client that
    disconnects ends the generator at once.
    """
    first_message = await anext(messages)

    async def generate() -> AsyncIterator[bytes]:
        async with aclosing(messages):
            yield format_message(first_message)
            async for message in messages:
                yield format_message(message)

    return stream_events(generate())


def stream_events(events: AsyncIterator[bytes]) -> StreamingResponse:
    return StreamingResponse(
        events,
        media_type=MEDIA_TYPE,
        # X-Accel-Buffering stops nginx from collecting the events.
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


def answer_events(request: Request, run_query: RunQuery) -> AsyncIterator[bytes]:
    """Run the query, and yield its progress and answer. Closing the generator cancels it."""
    start = format_event("{}", event="started")
    return follow_query(request, run_query, start, _format_step, event="error")


def _format_step(step: Progress | QueryResponse) -> Iterator[bytes]:
    names: dict[type, str] = {AnswerDelta: "delta", QueryResponse: "answer"}
    yield format_event(step.model_dump_json(), event=names.get(type(step), "step"))


async def follow_query(
    request: Request,
    run_query: RunQuery,
    start: bytes,
    format_step: Callable[[Progress | QueryResponse], Iterator[bytes]],
    **problem_fields: Any,
) -> AsyncIterator[bytes]:
    """Yield `start`, then the events of each step and of the answer, or of the problem.

    Comments keep the connection open meanwhile. Closing the generator cancels the query.
    """
    yield start
    progress_queue: asyncio.Queue[Progress | None] = asyncio.Queue()
    task = asyncio.ensure_future(run_query(progress_queue.put_nowait))
    # Also after an error, so that the loop below always ends.
    task.add_done_callback(lambda _: progress_queue.put_nowait(None))
    try:
        while True:
            try:
                async with asyncio.timeout(PING_INTERVAL_S):
                    progress = await progress_queue.get()
            except TimeoutError:
                yield WORKING
                continue
            if progress is None:
                break
            for event in format_step(progress):
                yield event
        try:
            response = task.result()
        except Exception as error:
            yield format_problem(request, error, **problem_fields)
        else:
            for event in format_step(response):
                yield event
    finally:
        # Also when the client disconnects, which closes this generator.
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def format_problem(request: Request, error: Exception, **fields: Any) -> bytes:
    """Format any error: the response has begun, so the exception handlers can no longer answer."""
    return format_event(bytes(build_error_problem(request, error).body).decode(), **fields)


async def iterate_events(response: httpx2.Response) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    """Yield name and data of each event that this application sent."""
    name = ""
    async for line in response.aiter_lines():
        field, _, value = line.partition(": ")
        if field == "event":
            name = value
        elif field == "data":
            yield name, json.loads(value)


ResultT = TypeVar("ResultT")


async def run_while_connected(receive: Receive, work: Coroutine[Any, Any, ResultT]) -> ResultT:
    """Run the coroutine. Cancels it and raises ClientDisconnect when the client disconnects.

    The body of the request must have been read.
    """

    async def wait_for_disconnect() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    working, watching = asyncio.create_task(work), asyncio.create_task(wait_for_disconnect())
    try:
        await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        working.cancel()
        watching.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)
