"""Shapes that responses share."""

from __future__ import annotations

from datetime import date, datetime
from typing import Annotated, Any, Generic, Literal, TypeVar
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

Item = TypeVar("Item")
# Some times come from Postgres as JSON text, and leave as they came.
Time = Annotated[datetime | str, WithJsonSchema({"type": "string", "format": "date-time"})]

Day = Annotated[date | str, WithJsonSchema({"type": "string", "format": "date"})]


class ResponseModel(BaseModel):
    """A response that never drops a field in silence: one that is not declared is a bug (500).

    The schema permits further fields all the same, since a later version may add some.
    """

    model_config = ConfigDict(
        extra="forbid", json_schema_extra=lambda schema: schema.pop("additionalProperties", None)
    )


class Page(ResponseModel, Generic[Item]):
    items: list[Item]
    next: str | None = Field(description="`after` of the next page; null on the last one.")


class NumberedPage(ResponseModel, Generic[Item]):
    """A page of a list that is ordered by a number."""

    items: list[Item]
    next: int | None = Field(description="`after` of the next page; null on the last one.")


class AcceptedChange(ResponseModel):
    """A change of a document that is durable in the log, and will soon be visible."""

    status: Literal["accepted"] = "accepted"
    document_id: UUID
    ingestion_job_id: UUID = Field(description="For GET /v1/ingest/status/{job}.")


class ErrorDetail(ResponseModel):
    code: str = Field(description="Code for programs.")
    detail: str = Field(description="What happened.")
    remedy: str = Field(description="What to do.")


class StageStatus(ResponseModel):
    """Work of one stage on one revision."""

    stage: str
    state: str = Field(description="waiting, running, done, failed or skipped.")
    attempts: int
    topic: str | None = Field(description="Topic of the event that the stage read.")
    partition: int | None
    offset: int | None
    started_at: Time | None
    duration_ms: float | None
    error: ErrorDetail | None


class DurationRange(ResponseModel):
    """An estimate between two bounds."""

    low: float
    high: float


JsonObject = dict[str, Any]
