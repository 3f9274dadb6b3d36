"""Run searches and queries, with metrics and one log line each. Log lines contain no text."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

import structlog

from retrieval.retriever import Retriever
from schemas.errors import AnabranchError, NotFound
from schemas.principals import Principal
from schemas.questions import (
    OnProgress,
    QueryRequest,
    QueryResponse,
    SearchRequest,
    SearchResponse,
    ignore_progress,
)
from services.instrumentation.metrics import Metrics
from services.query.retriever_pool import RetrieverPool

log = structlog.get_logger(__name__)
R = TypeVar("R", SearchResponse, QueryResponse)


@dataclass(frozen=True, slots=True)
class QueryService:
    retrievers: RetrieverPool
    metrics: Metrics
    fresh_id: Callable[[], UUID]

    async def search(self, caller: Principal, request: SearchRequest) -> SearchResponse:
        run = self.fresh_id()
        return await self._measure(
            "search",
            run,
            lambda: self._with_retriever(
                request,
                lambda retriever, name: retriever.search(caller, request, run, generation=name),
            ),
        )

    async def query(
        self, caller: Principal, request: QueryRequest, on_progress: OnProgress = ignore_progress
    ) -> QueryResponse:
        run = self.fresh_id()
        with self.metrics.streams.track_inprogress() if request.stream else nullcontext():
            return await self._measure(
                "query",
                run,
                lambda: self._with_retriever(
                    request,
                    lambda retriever, name: retriever.query(
                        caller, request, run, on_progress, generation=name
                    ),
                ),
            )

    async def _with_retriever(
        self, request: SearchRequest, run_query: Callable[[Retriever, str], Awaitable[R]]
    ) -> R:
        """Run on one generation throughout.

        If the live generation was dropped meanwhile, run once more on the new one.
        """
        async with self.retrievers.acquire(request.generation) as (name, retriever):
            try:
                return await run_query(retriever, name)
            except NotFound:
                if request.generation is not None:
                    raise
        async with self.retrievers.acquire(None) as (name, retriever):
            return await run_query(retriever, name)

    async def _measure(self, kind: str, run: UUID, run_query: Callable[[], Awaitable[R]]) -> R:
        started_at = time.perf_counter()
        try:
            response = await run_query()
        except AnabranchError as error:
            self.metrics.record_failed_query()
            log.warning(
                "query_failed", kind=kind, run=str(run), code=error.code, detail=error.detail
            )
            raise
        seconds = time.perf_counter() - started_at
        outcome = self.metrics.record_query(kind, seconds, response)
        self._log_response(kind, response, seconds, outcome)
        return response

    def _log_response(
        self, kind: str, response: SearchResponse | QueryResponse, seconds: float, outcome: str
    ) -> None:
        trace = response.trace
        log.info(
            "query_completed",
            kind=kind,
            run=str(response.run_id),
            outcome=outcome,
            generation=trace.generation,
            route=trace.route.mode,
            channels=trace.channels_used,
            failed=dict(trace.channels_failed),
            ms=round(seconds * 1000),
        )
