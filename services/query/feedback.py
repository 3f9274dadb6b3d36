"""Publish feedback on answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from schemas.errors import Forbidden, unknown_resource_error, unknown_run_error
from schemas.events import FeedbackGiven
from schemas.ids import content_id
from schemas.judgements import FeedbackReceipt, FeedbackRequest, GradedPassage
from schemas.principals import Principal
from services.background_tasks import poll_until
from services.publishing import EventPublisher
from sql.catalog.runs import PgFeedback

CE_SOURCE = "anabranch/api"
# How long the events of another process may take to reach the tables.
RUN_WAIT_S = 2.0


@dataclass(frozen=True, slots=True)
class FeedbackService:
    """Chunks are resolved to passages at once: a judgement outlives its chunk."""

    publisher: EventPublisher
    lookup: PgFeedback
    has_answered: Callable[[str, UUID], bool]
    """True if this process made the run; the tables may not have it yet."""
    on_feedback: Callable[[FeedbackRequest], None]

    async def submit(self, caller: Principal, request: FeedbackRequest) -> FeedbackReceipt:
        """Publish the feedback.

        Raises NotFound for an unknown run or chunk, Forbidden, LogUnavailable.
        """
        if request.candidate_rejected and (
            not caller.has_role("admin") or caller.readers is not None
        ):
            raise Forbidden(
                "Golden questions are chosen for the whole tenant; the credential has the role "
                f"{caller.role!r}{'' if caller.readers is None else ' and is limited to readers'}.",
                code="FORBIDDEN_ROLE",
                remedy="Use a credential with the role 'admin' and without readers.",
            )
        judgements = await self._resolve_judgements(caller, request.list_grades())
        run_query = await self._resolve_query(caller, request.run_id) if request.run_id else None
        query = request.query or run_query
        feedback = FeedbackGiven(
            feedback_id=self.publisher.fresh_id(),
            tenant=caller.tenant,
            given_at=self.publisher.clock(),
            query=query,
            judgements=judgements,
            **request.model_dump(exclude={"query", "chunk_ids", "grades"}),
        )
        await self.publisher.publish(
            feedback,
            CE_SOURCE,
            str(request.run_id or feedback.feedback_id),
            content_id("feedback", feedback.feedback_id),
            feedback.tenant,
        )
        self.on_feedback(request)
        return FeedbackReceipt(feedback_id=feedback.feedback_id, judgements=len(judgements))

    async def _resolve_query(self, caller: Principal, run_id: UUID) -> str | None:
        """Return the run's query; None for a recent run of this process.

        Waits for runs of other processes, which may be in flight.
        """

        def is_known(query: str | None) -> bool:
            # A limited caller gives feedback on its own runs only, which the tables alone can tell.
            is_recent = caller.readers is None and self.has_answered(caller.tenant, run_id)
            return query is not None or is_recent

        fetch = partial(self.lookup.fetch_question, caller, run_id)
        query = await poll_until(fetch, RUN_WAIT_S, is_known)
        if not is_known(query):
            raise unknown_run_error(run_id)
        return query

    async def _resolve_judgements(
        self, caller: Principal, grades: Mapping[UUID, int]
    ) -> list[GradedPassage]:
        passages = await self.lookup.fetch_passages(caller, list(grades)) if grades else {}
        if unknown := [str(chunk) for chunk in grades if chunk not in passages]:
            raise unknown_resource_error(
                "chunk",
                ", ".join(unknown),
                "Use the `chunk_id` of a recent result: a changed document has other chunks.",
            )
        return [
            GradedPassage(**passages[chunk].model_dump(), grade=grade)
            for chunk, grade in grades.items()
        ]
