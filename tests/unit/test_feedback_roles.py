"""Who may give feedback: on its own runs if limited, and on golden questions as administrator."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

import pytest

from schemas.errors import Forbidden, NotFound
from schemas.judgements import FeedbackRequest
from schemas.principals import Principal
from schemas.timestamps import utc_now
from services.query import feedback
from services.query.feedback import FeedbackService


class UnusedLog:
    async def append(self, records: Any) -> Any:
        raise AssertionError("nothing is published")


@pytest.mark.parametrize(
    "caller",
    [
        Principal("key:reader", "default", "reader"),
        Principal("key:writer", "default", "writer"),
        Principal("jwt:ana", "default", "admin", ("user:ana",)),
    ],
)
async def test_rejection_by_reader_or_limited_caller_is_refused(caller: Principal) -> None:
    service = FeedbackService(
        UnusedLog(),
        cast(Any, None),
        cast(Any, None),
        utc_now,
        lambda: UUID(int=1),
        lambda tenant, run: True,
    )
    with pytest.raises(Forbidden) as refused:
        await service.submit(caller, FeedbackRequest(run_id=UUID(int=2), candidate_rejected=True))
    assert refused.value.code == "FORBIDDEN_ROLE"


async def test_limited_caller_gives_no_feedback_on_a_run_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class NoRunOfTheCaller:
        async def fetch_question(self, caller: Principal, run_id: UUID) -> None:
            return None

    monkeypatch.setattr(feedback, "RUN_WAIT_S", 0.01)
    service = FeedbackService(
        UnusedLog(),
        cast(Any, NoRunOfTheCaller()),
        cast(Any, None),
        utc_now,
        lambda: UUID(int=1),
        # Another caller's run, which this process has just answered.
        lambda tenant, run: True,
    )
    caller = Principal("jwt:ana", "default", "reader", ("user:ana",))
    with pytest.raises(NotFound):
        await service.submit(caller, FeedbackRequest(run_id=UUID(int=2), useful=True))
