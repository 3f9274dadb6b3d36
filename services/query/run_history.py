"""Rerun, compare and trace past queries."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from cachetools import FIFOCache

from retrieval.retriever import Retriever
from retrieval.runs.lineage.prov import build_document_prov, build_run_prov
from retrieval.runs.lineage.tracer import LineageTracer, trace_run
from retrieval.runs.recorded_run import RecordedRun, parse_run
from retrieval.runs.rerun import rerun_run
from retrieval.runs.run_diff import DiffContext, compare_runs, get_passages
from schemas.errors import unknown_run_error
from schemas.events import EventData, QueryAnswered
from schemas.lineage import DocumentLineage, RunLineage
from schemas.ports.engines import SentenceSplitter
from schemas.principals import Principal
from schemas.questions import QueryRequest
from schemas.run_records import RunDiff
from sql.catalog.listings import PgListings
from sql.catalog.runs import PgRecordedTexts
from sql.index.generations import PgGenerations

MAX_RECENT_RUNS = 10_000
# The tables follow the log: an answer that this process has published may not be there yet.
RUN_WAIT_S, RUN_POLL_S = 5.0, 0.1


@dataclass(slots=True)
class QueryEventTap:
    """Publish query events, and capture the answers of awaited runs."""

    publish: Callable[[EventData], None]
    awaited: dict[UUID, QueryAnswered | None] = field(default_factory=dict)
    recent_runs: FIFOCache[tuple[str, UUID], None] = field(
        default_factory=lambda: FIFOCache(MAX_RECENT_RUNS)
    )

    def offer(self, event: EventData) -> None:
        self.publish(event)
        if isinstance(event, QueryAnswered):
            # Feedback may arrive before the tables have the run.
            self.recent_runs[event.tenant, event.run_id] = None
        if isinstance(event, QueryAnswered) and event.run_id in self.awaited:
            self.awaited[event.run_id] = event

    def has_answered(self, tenant: str, run_id: UUID) -> bool:
        return (tenant, run_id) in self.recent_runs

    @contextmanager
    def capture(self, run_id: UUID) -> Iterator[None]:
        self.awaited[run_id] = None
        try:
            yield
        finally:
            del self.awaited[run_id]


@dataclass(frozen=True, slots=True)
class RecentRunLookup:
    """Fetch a run from the tables; wait up to 5 s for one that this process has just answered."""

    runs: PgListings
    has_answered: Callable[[str, UUID], bool]

    async def get_run(self, caller: Principal, run_id: UUID) -> dict[str, Any] | None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + RUN_WAIT_S
        # A limited caller sees only its own runs, which the tables alone can tell.
        may_wait = caller.readers is None and self.has_answered(caller.tenant, run_id)
        row = await self.runs.get_run(caller, run_id)
        while may_wait and (row is None or row["answered_at"] is None) and loop.time() < deadline:
            await asyncio.sleep(RUN_POLL_S)
            row = await self.runs.get_run(caller, run_id)
        return row


@dataclass(frozen=True, slots=True)
class RunHistory:
    """Rerun and compare past runs.

    Raises NotFound for unknown runs, and for those with too little recorded.
    """

    runs: RecentRunLookup
    tables: PgRecordedTexts
    generations: PgGenerations
    acquire_retriever: Callable[[str | None], AbstractAsyncContextManager[tuple[str, Retriever]]]
    event_tap: QueryEventTap
    sentences: SentenceSplitter
    fresh_id: Callable[[], UUID]

    async def get_run(self, caller: Principal, run_id: UUID) -> dict[str, Any]:
        """Return the fields of a run. Raises NotFound if the caller has no such run."""
        row = await self.runs.get_run(caller, run_id)
        if row is None:
            raise unknown_run_error(run_id)
        return row

    async def rerun(self, caller: Principal, run_id: UUID) -> dict[str, Any]:
        """Rerun on the recorded texts; returns `{run_id, kind, same, differences[], missing[],
        response}`.
        """
        row = await self.get_run(caller, run_id)
        result = await rerun_run(row, caller, self.tables, self.sentences)
        return {
            "run_id": run_id,
            "kind": row["kind"],
            "same": result.same,
            "differences": list(result.differences),
            "missing": list(result.missing),
            "response": result.response.model_dump(mode="json"),
        }

    async def diff_run(self, caller: Principal, run_id: UUID, other_run_id: UUID | None) -> RunDiff:
        """Compare with another run, or with the same query now, which becomes a run of its own."""
        earlier = parse_run(await self.get_run(caller, run_id))
        later = (
            parse_run(await self.get_run(caller, other_run_id))
            if other_run_id
            else await self._run_again(caller, earlier)
        )
        names = {earlier.response.generation, later.response.generation}
        documents = sorted(
            {passage.document_id for run in (earlier, later) for passage in get_passages(run)}
        )
        generations = {
            name: passage
            for name in names
            if (passage := await self.generations.fetch(name)) is not None
        }
        return compare_runs(
            earlier,
            later,
            DiffContext(generations, await self.tables.fetch_current(caller, documents)),
        )

    async def _run_again(self, caller: Principal, earlier: RecordedRun) -> RecordedRun:
        """Run on the live generation with the current profile of that name."""
        run_id = self.fresh_id()
        # The tables get the run later, so its answer is taken from the event.
        with self.event_tap.capture(run_id):
            async with self.acquire_retriever(None) as (name, retriever):
                request = earlier.request.model_copy(update={"generation": name})
                if isinstance(request, QueryRequest):
                    await retriever.query(
                        # A recorded request may ask for a stream, which has no reader here.
                        caller,
                        request.model_copy(update={"stream": False}),
                        run_id,
                    )
                else:
                    await retriever.search(caller, request, run_id)
            answered = self.event_tap.awaited[run_id]
        assert answered is not None  # every query publishes its answer before it returns
        kind = "query" if isinstance(request, QueryRequest) else "search"
        return parse_run(
            {
                **answered.model_dump(mode="json"),
                "kind": kind,
                "request": request.model_dump(mode="json"),
            }
        )


@dataclass(frozen=True, slots=True)
class LineageService:
    tracer: LineageTracer
    runs: RecentRunLookup

    async def get_document_lineage(self, caller: Principal, document_id: UUID) -> DocumentLineage:
        return await self.tracer.trace_document(caller, document_id)

    async def get_run_lineage(
        self, caller: Principal, run_id: UUID, *, sentence: int | None, citation: int | None
    ) -> RunLineage:
        row = await self.runs.get_run(caller, run_id)
        if row is None:
            raise unknown_run_error(run_id)
        return await trace_run(self.tracer, caller, row, sentence=sentence, citation=citation)

    def to_prov(self, lineage: DocumentLineage | RunLineage) -> dict[str, Any]:
        """Format as PROV-JSON."""
        return (
            build_run_prov(lineage)
            if isinstance(lineage, RunLineage)
            else build_document_prov(lineage)
        )
