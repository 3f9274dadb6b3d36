"""Project feedback and judgements into their tables."""

from __future__ import annotations

from collections.abc import Iterable

from schemas.events import Event, FeedbackGiven
from schemas.rows import FeedbackRow, Row
from streams.stage import Stage
from streams.topics import FEEDBACK


def project(event: Event[FeedbackGiven]) -> Iterable[Row]:
    feedback = event.data
    yield FeedbackRow(
        *(
            feedback.feedback_id,
            feedback.tenant,
            feedback.given_at,
            feedback.run_id,
            feedback.query,
            feedback.useful,
            tuple(feedback.judgements),
            feedback.corrected_answer,
            feedback.note,
        )
    )


STAGE = Stage("judgements", FEEDBACK, 1, ordering_policy="always", project=project, fails_document=False, serves_all_generations=True)
