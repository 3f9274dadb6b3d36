"""Run searches and queries within a limit, with metrics and one log line each. Log lines contain no
text.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from typing import Protocol, TypeVar
from uuid import UUID

import structlog

from retrieval.retriever import EmbeddedTexts, Retriever
from schemas.errors import AnabranchError, NotFound, TransientError
from schemas.principals import Principal
from schemas.profiles import Profile
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

MAX_WAIT_S = 5.0
QUEUED_PER_SLOT = 64
"""About as many as finish within MAX_WAIT_S: a short burst is served late but not refused."""


class ConcurrencyLimiter:
    """Limit concurrency by slots, for which waiting tenants take turns.

    Raises TransientError with code BUSY (HTTP 503 with Retry-After) if the queue of the tenant is
    full or the wait too long.
    """

    def __init__(self, name: str, slots: int, metrics: Metrics) -> None:
        self.name, self.metrics = name, metrics
        self.free_slots = slots
        self.queue_limit = slots * QUEUED_PER_SLOT
        # By tenant, in the order of their turns. Nobody waits while a slot is free.
        self.queues: dict[str, deque[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def acquire_slot(self, tenant: str) -> AsyncIterator[None]:
        if self.free_slots:
            self.free_slots -= 1
        else:
            await self._wait_for_turn(tenant)
        try:
            yield
        finally:
            self._pass_on()

    async def _wait_for_turn(self, tenant: str) -> None:
        # Refused at once, since it would only time out in a longer queue.
        queue = self.queues.setdefault(tenant, deque())
        if sum(not turn.done() for turn in queue) >= self.queue_limit:
            raise self._build_busy_error()
        turn = asyncio.get_running_loop().create_future()
        queue.append(turn)
        try:
            async with asyncio.timeout(MAX_WAIT_S):
                await turn
        except BaseException as error:
            # The slot may have come at the moment of the time-out or cancellation.
            if not turn.cancelled():
                self._pass_on()
            if isinstance(error, TimeoutError):
                raise self._build_busy_error() from None
            raise

    def _pass_on(self) -> None:
        """Give a slot to the next tenant that waits, else free it."""
        while self.queues:
            tenant = next(iter(self.queues))
            queue = self.queues.pop(tenant)
            turn = queue.popleft()
            if queue:
                self.queues[tenant] = queue  # behind the other tenants
            # Those whose query gave up stay in the queue until then.
            if not turn.done():
                turn.set_result(None)
                return
        self.free_slots += 1

    def _build_busy_error(self) -> TransientError:
        self.metrics.refused_busy.labels(self.name).inc()
        return TransientError(
            f"Too many concurrent {self.name}.",
            code="BUSY",
            remedy="Retry in a few seconds, or raise ANABRANCH_DATABASE__API_POOL.",
        )


log = structlog.get_logger(__name__)
R = TypeVar("R", SearchResponse, QueryResponse)
RequestT = TypeVar("RequestT", bound=SearchRequest)


class ApplyDefaultProfile(Protocol):
    async def __call__(self, caller: Principal, request: RequestT) -> RequestT: ...


@dataclass(frozen=True, slots=True)
class QueryService:
    retrievers: RetrieverPool
    metrics: Metrics
    fresh_id: Callable[[], UUID]
    apply_default_profile: ApplyDefaultProfile
    select_profile: Callable[[SearchRequest], Profile]

    async def search(self, caller: Principal, request: SearchRequest) -> SearchResponse:
        run = self.fresh_id()
        request = await self.apply_default_profile(caller, request)
        return await self._measure(
            "search",
            run,
            request,
            lambda retriever, name: retriever.search(caller, request, run, generation=name),
            self.select_profile(request).run.timeout_s,
        )

    async def query(
        self,
        caller: Principal,
        request: QueryRequest,
        on_progress: OnProgress = ignore_progress,
        run: UUID | None = None,
    ) -> QueryResponse:
        request = await self.apply_default_profile(caller, request)
        # A run in the background has a time-out of its own, which ends its status too.
        timeout_s = self.select_profile(request).run.timeout_s if run is None else None
        run = run or self.fresh_id()
        with self.metrics.streams.track_inprogress() if request.stream else nullcontext():
            return await self._measure(
                "query",
                run,
                request,
                lambda retriever, name: retriever.query(
                    caller, request, run, on_progress, generation=name
                ),
                timeout_s,
            )

    async def embed(self, caller: Principal, model: str, texts: Sequence[str]) -> EmbeddedTexts:
        """Embed texts by the model of the live generation. Raises NotFound for another one."""
        async with self.retrievers.acquire(None) as (_, retriever):
            return await retriever.embed(caller, model, texts)

    async def _with_retriever(
        self, request: SearchRequest, run_query: Callable[[Retriever, str], Awaitable[R]]
    ) -> R:
        """Run on one generation throughout.

        If the live generation was dropped meanwhile, run once more on the new one.
        """
        async with self.retrievers.acquire(request.generation) as (name, retriever):
            try:
                return await run_query(retriever, name)
            # The generation was dropped after its retriever was acquired.
            except NotFound:
                if request.generation is not None:
                    raise
        async with self.retrievers.acquire(None) as (name, retriever):
            return await run_query(retriever, name)

    async def _measure(
        self,
        kind: str,
        run: UUID,
        request: SearchRequest,
        run_query: Callable[[Retriever, str], Awaitable[R]],
        timeout_s: float | None,
    ) -> R:
        started_at = time.perf_counter()
        try:
            response = await _run_within(timeout_s, self._with_retriever(request, run_query))
        except AnabranchError as error:
            self.metrics.record_failed_query()
            log.warning(
                "query_failed", kind=kind, run=str(run), code=error.code, detail=error.detail
            )
            raise
        seconds = time.perf_counter() - started_at
        outcome = self.metrics.record_query(kind, seconds, response)
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
        return response


async def _run_within(timeout_s: float | None, work: Awaitable[R]) -> R:
    """Run the query. Raises TransientError after `timeout_s`; None sets no limit."""
    limit = asyncio.timeout(timeout_s)
    try:
        async with limit:
            return await work
    except TimeoutError:
        if timeout_s is None or not limit.expired():
            raise
        raise build_run_timeout_error(timeout_s) from None


def build_run_timeout_error(timeout_s: float) -> TransientError:
    return TransientError(
        f"The question took longer than {timeout_s:g} s (run.timeout_s).",
        code="RUN_TIMED_OUT",
        remedy="Raise run.timeout_s in the profile, or ask a narrower question.",
    )
