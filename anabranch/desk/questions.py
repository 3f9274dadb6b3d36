"""Questions from outside: measured, with one line in the log and no text in it."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

import structlog

from anabranch.desk.answering import Answering
from anabranch.process.metrics import Metrics
from retrieval.pipeline import Retriever
from schemas.errors import AnabranchError, NotFound
from schemas.principals import Principal
from schemas.questions import QueryRequest, QueryResponse, SearchRequest, SearchResponse, Tell, untold

log = structlog.get_logger(__name__)
R = TypeVar("R", SearchResponse, QueryResponse)


@dataclass(frozen=True, slots=True)
class Asking:
    answering: Answering
    metrics: Metrics
    fresh_id: Callable[[], UUID]

    async def search(self, caller: Principal, request: SearchRequest) -> SearchResponse:
        run = self.fresh_id()
        return await self._measured(
            "search", run, lambda: self._asked(request, lambda retriever, name: retriever.search(caller, request, run, generation=name))
        )

    async def query(self, caller: Principal, request: QueryRequest, tell: Tell = untold) -> QueryResponse:
        run = self.fresh_id()
        with self.metrics.streams.track_inprogress() if request.stream else nullcontext():
            return await self._measured(
                "query", run, lambda: self._asked(request, lambda retriever, name: retriever.query(caller, request, run, tell, generation=name))
            )

    async def _asked(self, request: SearchRequest, ask: Callable[[Retriever, str], Awaitable[R]]) -> R:
        """Of one generation from beginning to end, whichever answers meanwhile. Once more where the live one was dropped under way."""
        async with self.answering.asked(request.generation) as (name, retriever):
            try:
                return await ask(retriever, name)
            except NotFound:
                if request.generation is not None:
                    raise
        async with self.answering.asked(None) as (name, retriever):
            return await ask(retriever, name)

    async def _measured(self, kind: str, run: UUID, ask: Callable[[], Awaitable[R]]) -> R:
        began = time.perf_counter()
        try:
            response = await ask()
        except AnabranchError as error:
            self.metrics.failed()
            log.warning("question failed", kind=kind, run=str(run), code=error.code, detail=error.detail)
            raise
        seconds = time.perf_counter() - began
        outcome = self.metrics.asked(kind, seconds, response)
        self._tell(kind, response, seconds, outcome)
        return response

    def _tell(self, kind: str, response: SearchResponse | QueryResponse, seconds: float, outcome: str) -> None:
        trace = response.trace
        log.info(
            "question",
            kind=kind,
            run=str(response.run_id),
            outcome=outcome,
            generation=trace.generation,
            route=trace.route.mode,
            channels=trace.channels_used,
            failed=dict(trace.channels_failed),
            ms=round(seconds * 1000),
        )
