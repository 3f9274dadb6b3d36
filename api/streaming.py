"""An answer as server-sent events (WHATWG HTML, section 9.2): the connection lives while the answer is worked out, and closing it ends the work."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from fastapi import Request
from fastapi.responses import StreamingResponse

from api.problems import problem_of
from schemas.questions import Progress, QueryResponse, Tell

PING_S = 15.0
MEDIA_TYPE = "text/event-stream"
EVENTS = """With `stream`, server-sent events, each with one line of JSON:

| event | data |
| --- | --- |
| `started` | `{}`, at once |
| `step` | `{name, ms}`: a step begins (`ms` null) or has ended |
| `delta` | `{draft, text}`: more words of the answer while a chat model writes it, not yet proven; void when `draft` grows. None where the answer is quoted |
| `answer` | the body of the plain call, which is what holds; the last event |
| `error` | a problem (RFC 9457), in place of `answer` |

Comments in between keep the connection open. Closing it ends the work."""

Ask = Callable[[Tell], Awaitable[QueryResponse]]


def answer_stream(request: Request, ask: Ask) -> StreamingResponse:
    return StreamingResponse(_events(request, ask), media_type=MEDIA_TYPE, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})


async def _events(request: Request, ask: Ask) -> AsyncIterator[str]:
    told: asyncio.Queue[Progress | None] = asyncio.Queue()
    task = asyncio.ensure_future(ask(told.put_nowait))
    task.add_done_callback(lambda _: told.put_nowait(None))
    try:
        yield event("started", "{}")
        async for line in _told(told):
            yield line
        yield _last(request, task)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _told(told: asyncio.Queue[Progress | None]) -> AsyncIterator[str]:
    while True:
        try:
            progress = await asyncio.wait_for(told.get(), PING_S)
        except TimeoutError:
            yield ": working\n\n"
            continue
        if progress is None:
            return
        yield event(type(progress).__name__.lower(), progress.model_dump_json())


def _last(request: Request, task: asyncio.Future[QueryResponse]) -> str:
    """The status line is long gone, so a bug is told as any other error is."""
    try:
        return event("answer", task.result().model_dump_json())
    except Exception as error:
        return event("error", bytes(problem_of(request, error).body).decode())


def event(name: str, data: str) -> str:
    """`data` must be one line, as JSON is."""
    return f"event: {name}\ndata: {data}\n\n"
