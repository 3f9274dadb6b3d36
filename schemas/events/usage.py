"""Questions and what came of them: topic `queries`."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import Field

from schemas.events.envelope import EventData
from schemas.run_records import RunRecord


class QueryReceived(EventData, name="query.received", topic="queries"):
    run_id: UUID
    tenant: str
    kind: str = Field(description="query or search")
    request: dict[str, Any]
    received_at: datetime
    asked_by: str | None = Field(None, description="id of the caller")


class QueryAnswered(EventData, name="query.answered", topic="queries"):
    """The response as it was sent, and every number that entered a sum."""

    run_id: UUID
    tenant: str
    generation: str
    answered_at: datetime
    response: dict[str, Any]
    candidates: list[dict[str, Any]] = Field(default=[], description="of every channel: chunk id, rank, score, and the scores of later steps")
    numbers: dict[str, Any] = Field(default={}, description="means, deviations, idfs, threshold")
    basis: RunRecord | None = Field(None, description="what else a rerun needs: profile, language, passages by the hash of their text")


EVENTS: tuple[type[EventData], ...] = (QueryReceived, QueryAnswered)
