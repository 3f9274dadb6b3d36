"""An answer as server-sent events (WHATWG HTML, section 9.2): the connection lives while the answer is worked out, and closing it ends the work."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable
from contextlib import suppress

from fastapi.responses import StreamingResponse

from api.problems import status_of
from schemas.errors import AnabranchError
from schemas.questions import QueryResponse

PING_S = 15.0


def answer_stream(answer: Awaitable[QueryResponse]) -> StreamingResponse:
    """`started`, then `answer` with the body of the plain call, or `error` with a problem; comments in between keep the connection open."""
    return StreamingResponse(_events(answer), media_type="text/event-stream", headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})


async def _events(answer: Awaitable[QueryResponse]) -> AsyncIterator[str]:
    task = asyncio.ensure_future(answer)
    try:
        yield event("started", "{}")
        while not (await asyncio.wait({task}, timeout=PING_S))[0]:
            yield ": working\n\n"
        yield _last(task)
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError, AnabranchError):
            await task


def _last(task: asyncio.Future[QueryResponse]) -> str:
    try:
        return event("answer", task.result().model_dump_json())
    except AnabranchError as error:
        return event("error", json.dumps({"status": status_of(error), "code": error.code, "detail": error.detail, "remedy": error.remedy}))


def event(name: str, data: str) -> str:
    """`data` must be one line, as JSON is."""
    return f"event: {name}\ndata: {data}\n\n"
