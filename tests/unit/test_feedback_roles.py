"""Only administrators of a whole tenant reject candidates for golden questions."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

import pytest

from schemas.errors import Forbidden
from schemas.judgements import FeedbackRequest
from schemas.principals import Principal
from schemas.timestamps import utc_now
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
