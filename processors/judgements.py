"""What people say of answers into the tables of feedback and judgements."""

from __future__ import annotations

from collections.abc import Iterable

from schemas.events import Fact, FeedbackGiven
from schemas.rows import FeedbackRow, Row
from streams.stage import Stage
from streams.topics import FEEDBACK


def project(fact: Fact[FeedbackGiven]) -> Iterable[Row]:
    said = fact.data
    yield FeedbackRow(
        *(said.feedback_id, said.tenant, said.given_at, said.run_id, said.query, said.useful, tuple(said.judgements), said.corrected_answer, said.note)
    )


STAGE = Stage("judgements", FEEDBACK, 1, counts="always", project=project, essential=False, shared=True)
