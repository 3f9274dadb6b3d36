"""Project feedback, judgements and facts into their tables."""

from __future__ import annotations

from collections.abc import Iterable

from schemas.events import (
    Event,
    FactApproved,
    FactProposed,
    FactRejected,
    FactRetracted,
    FeedbackGiven,
)
from schemas.facts import Fact
from schemas.ports.ledger import OrderingPolicy
from schemas.query_rows import FactDecisionRow, FactEventRow, FactRetractedRow, FactRow, FeedbackRow
from schemas.rows import Row
from schemas.topics import FEEDBACK
from streams.stage import Stage


def project(
    event: Event[FeedbackGiven | FactProposed | FactApproved | FactRejected | FactRetracted],
) -> Iterable[Row]:
    match event.data:
        case FeedbackGiven() as feedback:
            yield FeedbackRow(
                feedback_id=feedback.feedback_id,
                tenant=feedback.tenant,
                given_at=feedback.given_at,
                run_id=feedback.run_id,
                query=feedback.query,
                useful=feedback.useful,
                judgements=tuple(feedback.judgements),
                corrected_answer=feedback.corrected_answer,
                note=feedback.note,
                candidate_rejected=feedback.candidate_rejected,
            )
        case FactProposed() as proposed:
            fields = proposed.model_dump(exclude={"tenant"})
            yield FactRow(proposed.tenant, Fact(status="proposed", **fields))
        case FactApproved() as decision:
            yield FactDecisionRow(
                decision.tenant,
                decision.fact_id,
                "approved",
                decision.decided_by,
                decision.decided_at,
            )
        case FactRejected() as decision:
            yield FactDecisionRow(
                decision.tenant,
                decision.fact_id,
                "rejected",
                decision.decided_by,
                decision.decided_at,
                decision.reason,
            )
        case FactRetracted(tenant=tenant, fact_id=fact_id):
            yield FactRetractedRow(tenant, fact_id)
    if not isinstance(event.data, FeedbackGiven) and event.position is not None:
        yield FactEventRow(event.data.tenant, event.data.fact_id, event.position.offset)


STAGE = Stage(
    "judgements",
    FEEDBACK,
    1,
    ordering_policy=OrderingPolicy.ALWAYS,
    project=project,
    fails_document=False,
    serves_all_generations=True,
)
