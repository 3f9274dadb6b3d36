"""The retriever, as soon as there is a generation to ask."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import structlog

from retrieval.pipeline import Retriever
from schemas.errors import AnabranchError, TransientError
from schemas.generations import Generation
from schemas.ports.ledger import Generations

log = structlog.get_logger(__name__)
POLL_S = 0.05
Prepare = Callable[[Generation], AbstractAsyncContextManager[Retriever]]


@dataclass(slots=True)
class Answering:
    """`retriever` raises what keeps it from being there: TransientError with code NO_GENERATION until a worker has made one."""

    found: Retriever | None = None
    error: AnabranchError | None = None

    def retriever(self) -> Retriever:
        if self.found is not None:
            return self.found
        if self.error is not None:
            raise self.error
        raise TransientError("there is no generation to ask yet", code="NO_GENERATION", remedy="Start a worker: it makes the first one.")


@asynccontextmanager
async def answering(generations: Generations, prepare: Prepare) -> AsyncIterator[Answering]:
    """At once where a generation is live, and then raising what `prepare` raises; else as soon as one is."""
    state = Answering()
    async with AsyncExitStack() as stack:
        live = await generations.live()
        if live is not None:
            state.found = await stack.enter_async_context(prepare(live))
            yield state
            return
        waiting = asyncio.create_task(_wait(generations, prepare, state, stack))
        try:
            yield state
        finally:
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)


async def _wait(generations: Generations, prepare: Prepare, state: Answering, stack: AsyncExitStack) -> None:
    while (live := await _live(generations)) is None:
        await asyncio.sleep(POLL_S)
    try:
        state.found = await stack.enter_async_context(prepare(live))
    except AnabranchError as error:
        log.error("questions cannot be answered", code=error.code, detail=error.detail, remedy=error.remedy)
        state.error = error


async def _live(generations: Generations) -> Generation | None:
    try:
        return await generations.live()
    except TransientError:
        return None
