"""Stream answers and messages as server-sent events (WHATWG HTML, section 9.2)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import TypeVar

from fastapi import Request
from fastapi.responses import StreamingResponse
from fastapi.sse import format_sse_event

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
RunQuery = Callable[[OnProgress], Awaitable[QueryResponse]]
MessageT = TypeVar("MessageT")


def stream_answer(request: Request, run_query: RunQuery) -> StreamingResponse:
    """Run the query and stream its progress and answer. Closing the connection cancels it."""
    return stream_events(_generate_events(request, run_query))


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


async def _generate_events(request: Request, run_query: RunQuery) -> AsyncIterator[bytes]:
    yield format_sse_event(event="started", data_str="{}")
    async with aclosing(follow_query(run_query)) as steps:
        async for progress in steps:
            match progress:
                case None:
                    yield WORKING
                case asyncio.Future():
                    yield _format_final_event(request, progress)
                case _:
                    yield format_sse_event(
                        event="delta" if isinstance(progress, AnswerDelta) else "step",
                        data_str=progress.model_dump_json(),
                    )


async def follow_query(
    run_query: RunQuery,
) -> AsyncGenerator[Progress | asyncio.Future[QueryResponse] | None, None]:
    """Yield the progress, None to keep the connection open meanwhile, and last the ended task.

    Closing the generator cancels the query.
    """
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
                yield None
                continue
            if progress is None:
                break
            yield progress
        yield task
    finally:
        # Also when the client disconnects, which closes this generator.
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _format_final_event(request: Request, task: asyncio.Future[QueryResponse]) -> bytes:
    """Format the answer, or any error as a problem: the status line has been sent already."""
    try:
        return format_sse_event(event="answer", data_str=task.result().model_dump_json())
    # The response has begun, so the exception handlers can no longer answer.
    except Exception as error:
        problem = bytes(build_error_problem(request, error).body).decode()
        return format_sse_event(event="error", data_str=problem)
