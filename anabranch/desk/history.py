"""Past questions: answered again as they were, and compared with another answer or with now."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol
from uuid import UUID

from retrieval.diff import Known, compare, passages
from retrieval.past import Past, past_of
from retrieval.pipeline import Retriever
from retrieval.rerun import rerun
from schemas.errors import NotFound
from schemas.events import Event, QueryAnswered
from schemas.ports.engines import Sentences
from schemas.ports.ledger import Generations
from schemas.ports.runs import DocumentsNow, PastTexts
from schemas.principals import Principal
from schemas.questions import QueryRequest
from schemas.run_diffs import RunDiff

RECENT_RUNS = 10_000


class Runs(Protocol):
    async def run(self, caller: Principal, run_id: UUID) -> dict[str, Any] | None: ...


class Tables(PastTexts, DocumentsNow, Protocol): ...


@dataclass(slots=True)
class Overheard:
    """Passes facts of questions on, and keeps the answers of those runs that somebody waits for."""

    publish: Callable[[Event], None]
    heard: dict[UUID, QueryAnswered | None] = field(default_factory=dict)
    recent: dict[tuple[str, UUID], None] = field(default_factory=dict)
    """The latest runs, the oldest first."""

    def offer(self, event: Event) -> None:
        self.publish(event)
        if isinstance(event, QueryAnswered):
            self.recent[event.tenant, event.run_id] = None
            if len(self.recent) > RECENT_RUNS:
                del self.recent[next(iter(self.recent))]
        if isinstance(event, QueryAnswered) and event.run_id in self.heard:
            self.heard[event.run_id] = event

    def has_answered(self, tenant: str, run_id: UUID) -> bool:
        return (tenant, run_id) in self.recent

    @contextmanager
    def waiting_for(self, run_id: UUID) -> Iterator[None]:
        self.heard[run_id] = None
        try:
            yield
        finally:
            del self.heard[run_id]


@dataclass(frozen=True, slots=True)
class History:
    """Raises NotFound for a run that is not there, or of which too little was recorded."""

    runs: Runs
    tables: Tables
    generations: Generations
    asked: Callable[[str | None], AbstractAsyncContextManager[tuple[str, Retriever]]]
    overheard: Overheard
    sentences: Sentences
    fresh_id: Callable[[], UUID]

    async def rerun(self, caller: Principal, run_id: UUID) -> dict[str, Any]:
        """`{run_id, kind, same, differences[], missing[], response}`."""
        row = await self._row(caller, run_id)
        made = await rerun(row, caller, self.tables, self.sentences)
        return {
            "run_id": run_id,
            "kind": row["kind"],
            "same": made.same,
            "differences": list(made.differences),
            "missing": list(made.missing),
            "response": made.response.model_dump(mode="json"),
        }

    async def diff(self, caller: Principal, run_id: UUID, other: UUID | None) -> RunDiff:
        """Against another run, or against the same question asked now, which becomes a run of its own."""
        then = past_of(await self._row(caller, run_id))
        now = past_of(await self._row(caller, other)) if other else await self._asked_now(caller, then)
        names = {then.response.generation, now.response.generation}
        documents = sorted({one.document_id for past in (then, now) for one in passages(past)})
        generations = {name: one for name in names if (one := await self.generations.get(name)) is not None}
        return compare(then, now, Known(generations, await self.tables.now(caller, documents)))

    async def _row(self, caller: Principal, run_id: UUID) -> dict[str, Any]:
        row = await self.runs.run(caller, run_id)
        if row is None:
            raise NotFound(f"no run {run_id}", remedy="It may not have reached the log yet; `anabranch runs list` shows those that have.")
        return row

    async def _asked_now(self, caller: Principal, then: Past) -> Past:
        """By the live generation and today's profile of that name."""
        run_id = self.fresh_id()
        with self.overheard.waiting_for(run_id):
            async with self.asked(None) as (name, retriever):
                request = then.request.model_copy(update={"generation": name})
                if isinstance(request, QueryRequest):
                    await retriever.query(caller, request.model_copy(update={"stream": False}), run_id)
                else:
                    await retriever.search(caller, request, run_id)
            fact = self.overheard.heard[run_id]
        assert fact is not None  # every question publishes its answer before it returns
        kind = "query" if isinstance(request, QueryRequest) else "search"
        return past_of({**fact.model_dump(mode="json"), "kind": kind, "request": request.model_dump(mode="json")})
