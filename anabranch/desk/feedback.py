"""What people say of answers, on its way into the log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

from anabranch.process.metrics import Metrics
from schemas.errors import NotFound
from schemas.events import FeedbackGiven
from schemas.ids import content_id
from schemas.judgements import FeedbackReceipt, FeedbackRequest, Judged, Passage
from schemas.ports.log import EventLog
from schemas.principals import Principal
from streams.codec import Codec
from streams.publisher import own_fact
from streams.topics import FEEDBACK

AUTHOR = "anabranch/api"
RUN_WAIT_S = 2.0


class Asked(Protocol):
    async def passages(self, caller: Principal, chunk_ids: Sequence[UUID]) -> Mapping[UUID, Passage]: ...

    async def question(self, caller: Principal, run_id: UUID) -> str | None: ...


@dataclass(frozen=True, slots=True)
class LogFeedback:
    """Chunks are turned into passages while they are there: a judgement outlives them."""

    log: EventLog
    asked: Asked
    codec: Codec
    clock: Callable[[], datetime]
    fresh_id: Callable[[], UUID]
    answered_here: Callable[[str, UUID], bool]
    """Whether this process made the run, which the tables may not have yet."""

    async def give(self, caller: Principal, request: FeedbackRequest) -> FeedbackReceipt:
        """Returns once the log has it. Raises NotFound for an unknown run and for chunks that answer in no generation, LogUnavailable."""
        judged = await self._judged(caller, request.graded())
        asked = await self._question(caller, request.run_id) if request.run_id else None
        query = request.query or asked
        said = FeedbackGiven(
            feedback_id=self.fresh_id(),
            tenant=caller.tenant,
            given_at=self.clock(),
            run_id=request.run_id,
            query=query,
            useful=request.useful,
            judgements=judged,
            corrected_answer=request.corrected_answer,
            note=request.note,
        )
        await self._publish(said)
        return FeedbackReceipt(feedback_id=said.feedback_id, judgements=len(judged))

    async def _question(self, caller: Principal, run_id: UUID) -> str | None:
        """None for a run of this process that the tables do not have yet. One of another process may be on its way: it is waited for."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + RUN_WAIT_S
        while (query := await self.asked.question(caller, run_id)) is None and not self.answered_here(caller.tenant, run_id):
            if loop.time() > deadline:
                raise NotFound(f"There is no run {run_id}.", remedy="Take `run_id` from an answer. GET /v1/runs lists the runs that have reached the tables.")
            await asyncio.sleep(RUN_WAIT_S / 20)
        return query

    async def _judged(self, caller: Principal, grades: Mapping[UUID, int]) -> list[Judged]:
        passages = await self.asked.passages(caller, list(grades)) if grades else {}
        if unknown := [str(chunk) for chunk in grades if chunk not in passages]:
            raise NotFound(f"no chunk {', '.join(unknown)}", remedy="Take `chunk_id` from a result; a document that changed since has other chunks.")
        return [Judged(**passages[chunk].model_dump(), grade=grade) for chunk, grade in grades.items()]

    async def _publish(self, said: FeedbackGiven) -> None:
        fact = own_fact(said, content_id("feedback", said.feedback_id), AUTHOR, self.clock, tenant=said.tenant)
        await self.log.append([await self.codec.encode(fact, FEEDBACK, str(said.run_id or said.feedback_id))])


@dataclass(frozen=True, slots=True)
class CountedFeedback:
    inner: LogFeedback
    metrics: Metrics

    async def give(self, caller: Principal, request: FeedbackRequest) -> FeedbackReceipt:
        receipt = await self.inner.give(caller, request)
        self.metrics.said(request)
        return receipt
