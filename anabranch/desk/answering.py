"""Retrievers for every generation that can be asked, made before somebody asks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import structlog

from retrieval.pipeline import Retriever
from schemas.errors import AnabranchError, InvalidRequest, NotFound, TransientError
from schemas.generations import EmbedConfig, Generation
from schemas.ports.ledger import Generations

log = structlog.get_logger(__name__)
FIRST_POLL_S = 0.05
POLL_S = 1.0
Prepare = Callable[[Generation], AbstractAsyncContextManager[Retriever]]


@dataclass(slots=True)
class Prepared:
    """One retriever, for all generations with the same embedding."""

    stack: AsyncExitStack
    retriever: Retriever | None = None
    error: AnabranchError | None = None
    users: int = 0


@dataclass(slots=True)
class Answering:
    generations: Generations
    prepare: Prepare
    prepared: dict[EmbedConfig, Prepared] = field(default_factory=dict)
    preparing: asyncio.Lock = field(default_factory=asyncio.Lock)

    @asynccontextmanager
    async def asked(self, name: str | None) -> AsyncIterator[tuple[str, Retriever]]:
        """The generation that is to be asked (None: the live one) and who asks it, for as long as the context is open. Raises NotFound, InvalidRequest for one
        that is still being built, TransientError with code NO_GENERATION until a worker has made one, and what `prepare` raised."""
        generation = await self._generation(name)
        chosen = await self._prepared(generation)
        if chosen.retriever is None:
            assert chosen.error is not None
            raise chosen.error
        chosen.users += 1
        try:
            yield generation.name, chosen.retriever
        finally:
            chosen.users -= 1

    async def keep(self) -> None:
        """Prepares for what can be asked, lets go of what nobody asks any more; until cancelled."""
        while True:
            await asyncio.sleep(POLL_S if await self.tidy() else FIRST_POLL_S)

    async def tidy(self) -> bool:
        """Once; whether anything can be asked."""
        found = await self._askable()
        for generation in found:
            await self._prepared(generation)
        await self._let_go({generation.config.embed for generation in found})
        return bool(found)

    async def close(self) -> None:
        for one in self.prepared.values():
            await one.stack.aclose()

    async def _generation(self, name: str | None) -> Generation:
        if name is None:
            live = await self.generations.live()
            if live is None:
                raise TransientError("there is no generation to ask yet", code="NO_GENERATION", remedy="Start a worker: it makes the first one.")
            return live
        named = await self.generations.get(name)
        if named is None or named.state == "dropped":
            raise NotFound(f"no generation {name!r}", code="NO_SUCH_GENERATION", remedy="`anabranch generations list` shows them.")
        if named.state == "building":
            raise InvalidRequest(f"generation {name} is still being built", code="GENERATION_NOT_BUILT", remedy="Ask the live one until then.")
        return named

    async def _prepared(self, generation: Generation) -> Prepared:
        """At once where it is there; else made, one at a time. What could not be made for a reason that may pass is tried again."""
        key = generation.config.embed
        if (found := self.prepared.get(key)) and not isinstance(found.error, TransientError):
            return found
        async with self.preparing:
            if (found := self.prepared.get(key)) and not isinstance(found.error, TransientError):
                return found
            self.prepared[key] = await self._made(generation)
            return self.prepared[key]

    async def _made(self, generation: Generation) -> Prepared:
        made = Prepared(AsyncExitStack())
        try:
            made.retriever = await made.stack.enter_async_context(self.prepare(generation))
        except AnabranchError as error:
            log.error("questions cannot be answered", generation=generation.name, code=error.code, detail=error.detail, remedy=error.remedy)
            made.error = error
        return made

    async def _askable(self) -> list[Generation]:
        try:
            return [one for one in await self.generations.undropped() if one.state != "building"]
        except TransientError:
            return []

    async def _let_go(self, wanted: set[EmbedConfig]) -> None:
        for key in [key for key, one in self.prepared.items() if wanted and key not in wanted and not one.users]:
            await self.prepared.pop(key).stack.aclose()


@asynccontextmanager
async def answering(generations: Generations, prepare: Prepare) -> AsyncIterator[Answering]:
    """At once where a generation is live, and then raising what `prepare` raises; else as soon as one is."""
    state = Answering(generations, prepare)
    keeping: asyncio.Task[None] | None = None
    try:
        if await generations.live() is not None:
            async with state.asked(None):
                """It is there, or has raised."""
        keeping = asyncio.create_task(state.keep())
        yield state
    finally:
        if keeping is not None:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
        await state.close()
