"""Project feedback and judgements into their tables."""

from __future__ import annotations

from collections.abc import Iterable

from schemas.events import Event, FeedbackGiven
from schemas.ports.ledger import OrderingPolicy
from schemas.rows import FeedbackRow, Row
from schemas.topics import FEEDBACK
from streams.stage import Stage


def project(event: Event[FeedbackGiven]) -> Iterable[Row]:
    feedback = event.data
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
    )


STAGE = Stage(
    "judgements",
    FEEDBACK,
    1,
    ordering_policy=OrderingPolicy.ALWAYS,
    project=project,
    fails_document=False,
    serves_all_generations=True,
)
