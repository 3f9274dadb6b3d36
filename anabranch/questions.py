"""Questions from outside: measured, with one line in the log and no text in it."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

import structlog

from anabranch.metrics import Metrics
from retrieval.pipeline import Retriever
from schemas.errors import AnabranchError
from schemas.questions import QueryRequest, QueryResponse, SearchRequest, SearchResponse, Tell, untold

log = structlog.get_logger(__name__)
R = TypeVar("R", SearchResponse, QueryResponse)


@dataclass(frozen=True, slots=True)
class Asking:
    retriever: Callable[[], Retriever]
    tenant: str
    metrics: Metrics
    fresh_id: Callable[[], UUID]

    async def search(self, request: SearchRequest) -> SearchResponse:
        run = self.fresh_id()
        return await self._measured("search", run, lambda: self.retriever().search(self.tenant, request, run))

    async def query(self, request: QueryRequest, tell: Tell = untold) -> QueryResponse:
        run = self.fresh_id()
        return await self._measured("query", run, lambda: self.retriever().query(self.tenant, request, run, tell))

    async def _measured(self, kind: str, run: UUID, ask: Callable[[], Awaitable[R]]) -> R:
        began = time.perf_counter()
        try:
            response = await ask()
        except AnabranchError as error:
            self.metrics.asked(kind, 0.0, "error", None)
            log.warning("question failed", kind=kind, run=str(run), code=error.code, detail=error.detail)
            raise
        seconds = time.perf_counter() - began
        outcome = "refused" if isinstance(response, QueryResponse) and response.refused else "answered"
        self.metrics.asked(kind, seconds, outcome, response.trace)
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
