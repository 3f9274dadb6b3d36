"""Rerun, compare and trace past queries."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from uuid import UUID

from retrieval.retriever import Retriever
from retrieval.runs.bisection import bisect_runs
from retrieval.runs.counterfactual import answer_without_each_document
from retrieval.runs.lineage.prov import build_document_prov, build_run_prov
from retrieval.runs.lineage.tracer import LineageTracer, trace_run
from retrieval.runs.recorded_run import RecordedRun, parse_run
from retrieval.runs.rerun import fetch_run_texts, rerun_run
from retrieval.runs.run_diff import DiffContext, compare_runs, get_passages
from schemas.errors import NotFound, PermanentError, unknown_run_error
from schemas.lineage import DocumentLineage, RunLineage
from schemas.ports.log import EventLog
from schemas.principals import Principal
from schemas.questions import QueryRequest, SearchRequest
from schemas.run_records import Bisection, CounterfactualAnswer, GraphSummary, RunDiff
from schemas.topics import Position, StoredRecord, parse_position
from services.background_tasks import poll_until
from services.query.event_buffer import QueryEventTap
from sql.catalog.listings import PgListings
from sql.catalog.runs import PgRecordedTexts
from sql.index.generations import PgGenerations
from streams.codec import Codec

# The tables follow the log: an answer that this process has published may not be there yet.
RUN_WAIT_S = 5.0


@dataclass(frozen=True, slots=True)
class RecentRunLookup:
    """Fetch a run from the tables; wait up to 5 s for one that this process has just answered."""

    runs: PgListings
    has_answered: Callable[[str, UUID], bool]

    async def get_run(self, caller: Principal, run_id: UUID) -> dict[str, Any]:
        """Return the fields of a run. Raises NotFound if the caller has no such run."""
        # A limited caller sees only its own runs, which the tables alone can tell.
        may_wait = caller.readers is None and self.has_answered(caller.tenant, run_id)
        row = await poll_until(
            partial(self.runs.get_run, caller, run_id),
            RUN_WAIT_S if may_wait else 0,
            lambda row: row is not None and row["answered_at"] is not None,
        )
        if row is None:
            raise unknown_run_error(run_id)
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
    log: EventLog
    codec: Codec
    event_tap: QueryEventTap
    fresh_id: Callable[[], UUID]

    async def rerun(self, caller: Principal, run_id: UUID) -> dict[str, Any]:
        """Rerun on the recorded texts; returns `{run_id, kind, same, differences[], missing[],
        response}`.
        """
        row = await self.runs.get_run(caller, run_id)
        result = await rerun_run(row, caller, self.tables)
        return {
            "run_id": run_id,
            "kind": row["kind"],
            "same": result.same,
            "differences": list(result.differences),
            "missing": list(result.missing),
            "response": result.response.model_dump(mode="json"),
        }

    async def answer_without_documents(
        self, caller: Principal, run_id: UUID
    ) -> CounterfactualAnswer:
        """Answer from the recorded candidates with each cited document left out."""
        record = parse_run(await self.runs.get_run(caller, run_id))
        texts = await fetch_run_texts(record, caller, self.tables)
        return await answer_without_each_document(record, caller, texts)

    async def diff_run(self, caller: Principal, run_id: UUID, other_run_id: UUID | None) -> RunDiff:
        """Compare with another run, or with the same query now."""
        earlier, later = await self._fetch_pair(caller, run_id, other_run_id)
        return await self.compare(caller, earlier, later)

    async def bisect(
        self,
        caller: Principal,
        run_id: UUID,
        other_run_id: UUID | None,
        positions: Sequence[str | None] = (None, None),
    ) -> Bisection:
        """Find the change that flipped the answer until the other run, or until now.

        With `positions`, only between these two of the log. Raises NotFound for one that is not of
        an event of the caller's tenant.
        """
        earlier, later = await self._fetch_pair(caller, run_id, other_run_id)
        texts = {
            **await fetch_run_texts(earlier, caller, self.tables),
            **await fetch_run_texts(later, caller, self.tables),
        }
        documents = {one.document_id for run in (earlier, later) for one in run.candidates}
        arrivals = await self.tables.fetch_arrivals(caller, sorted(documents))
        known = {position for one in arrivals for position in (one.position, one.withdrawal)}
        start, end = [
            await self._read_record(caller, parse_position(text), known) if text else None
            for text in positions
        ]
        # The tables do not know the times.
        withdrawals = {
            position: stored.appended_at
            for position in {one.withdrawal for one in arrivals if one.withdrawal}
            if (stored := await self.log.read_at(position))
        }
        arrivals = [
            replace(one, withdrawn_at=withdrawals.get(one.withdrawal)) if one.withdrawal else one
            for one in arrivals
        ]
        return await bisect_runs(earlier, later, caller, texts, arrivals, start, end)

    async def _read_record(
        self, caller: Principal, position: Position, known: Set[Position | None]
    ) -> StoredRecord:
        exists = position.topic in await self.log.list_topics()
        stored = await self.log.read_at(position) if exists else None
        # When others' events arrived is theirs to know.
        if stored is None or not (
            position in known
            or (caller.readers is None and await self._find_tenant(stored) == caller.tenant)
        ):
            raise NotFound(
                f"No event of tenant {caller.tenant!r} is at {position}.",
                remedy="GET /v1/documents/{id}/lineage lists the positions of a document.",
            )
        return stored

    async def _find_tenant(self, stored: StoredRecord) -> str | None:
        try:
            event = await self.codec.decode(stored)
        except PermanentError:  # Erased, or not an event.
            return None
        return event.tenant or getattr(event.data, "tenant", None)

    async def _fetch_pair(
        self, caller: Principal, run_id: UUID, other_run_id: UUID | None
    ) -> tuple[RecordedRun, RecordedRun]:
        """Fetch a run and the other one, or the same query now, which becomes a run of its own."""
        earlier = parse_run(await self.runs.get_run(caller, run_id))
        if other_run_id:
            return earlier, parse_run(await self.runs.get_run(caller, other_run_id))
        return earlier, await self.run_now(caller, earlier.request)

    async def compare(self, caller: Principal, earlier: RecordedRun, later: RecordedRun) -> RunDiff:
        """Compare two runs, and explain the differences by the current documents."""
        names = {earlier.response.generation, later.response.generation}
        documents = sorted(
            {passage.document_id for run in (earlier, later) for passage in get_passages(run)}
        )
        generations = {name: one for name in names if (one := await self.generations.fetch(name))}
        context = DiffContext(generations, await self.tables.fetch_current(caller, documents))
        return compare_runs(earlier, later, context)

    async def summarize_graph(self, caller: Principal, run_id: UUID) -> GraphSummary:
        """Summarize the relations and claims that were read with an answer."""
        run = parse_run(await self.runs.get_run(caller, run_id))
        async with self.acquire_retriever(None) as (_, retriever):
            return await retriever.summarize_graph(caller, run)

    async def run_now(self, caller: Principal, request: SearchRequest) -> RecordedRun:
        """Run on the live generation with the current profile of that name."""
        run_id = self.fresh_id()
        # The tables get the run later, so its answer is taken from the event.
        with self.event_tap.capture(run_id):
            async with self.acquire_retriever(None) as (name, retriever):
                request = request.model_copy(update={"generation": name})
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
        return await trace_run(self.tracer, caller, row, sentence=sentence, citation=citation)

    def to_prov(self, lineage: DocumentLineage | RunLineage) -> dict[str, Any]:
        """Format as PROV-JSON."""
        return (
            build_run_prov(lineage)
            if isinstance(lineage, RunLineage)
            else build_document_prov(lineage)
        )
