"""What a comparison of two generations is asked with: questions, where from, and what is known of their answers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Self
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from schemas.errors import InvalidRequest
from schemas.judgements import MAX_QUOTE_CHARS, Grade
from schemas.questions import Channel, Filters, QueryText
from schemas.timestamps import Timestamp
from schemas.values import Value

EXPECTED_FORMAT = 'One JSON object a line: {"query": "…", "judgements": [{"external_id": "…", "quote": "…", "grade": 3}]}.'


class CharacterSpan(Value):
    char_start: int = Field(ge=0)
    char_end: int = Field(ge=0)


class GoldenJudgement(Value):
    """A passage by its quote, by its place, or both; with neither, the document as a whole."""

    external_id: str | None = Field(None, description="of a document without one, its source URI or file name")
    document_id: UUID | None = None
    revision: int | None = Field(None, description="that the place was read in; with a quote it may have changed since")
    span: CharacterSpan | None = None
    quote: str | None = Field(None, min_length=1, max_length=MAX_QUOTE_CHARS)
    grade: Grade = 1

    @model_validator(mode="after")
    def check_document_named(self) -> Self:
        if self.external_id is None and self.document_id is None:
            raise ValueError("external_id or document_id must be given")
        return self


class GoldenQuestion(BaseModel):
    model_config = ConfigDict(extra="forbid")

    query: QueryText
    judgements: list[GoldenJudgement] = Field(default=[], max_length=1000)
    language: str | None = None
    filters: Filters = Filters()
    channels: list[Channel] | None = Field(None, min_length=1)


class ComparisonRequest(BaseModel):
    """Golden questions, and those that were asked between `since` and `until`."""

    model_config = ConfigDict(extra="forbid")

    golden: list[GoldenQuestion] = Field(default=[], max_length=5000)
    since: Timestamp | None = Field(None, description="of the real questions, and of the feedback whose judgements count; UTC where no zone is given")
    until: Timestamp | None = None
    queries: int = Field(200, ge=0, le=5000, description="real questions at most, the latest first")
    answers: bool = Field(False, description="let the chat model answer as well, which costs its tokens; without, the ranking and refusals are compared")
    profile: str | None = Field(None, description="in place of the one that was asked with")


class ComparisonBody(ComparisonRequest):
    a: str = Field(description="generation that is compared with")
    b: str = Field(description="generation that is compared")


def read_golden(path: Path) -> list[GoldenQuestion]:
    """Raises InvalidRequest that names the line."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"{path} cannot be read: {error}", code="NOT_A_TEST_SET", remedy=EXPECTED_FORMAT) from error
    return [_parse_question(line, f"{path.name} line {number}") for number, line in enumerate(lines, 1) if line.strip()]


def _parse_question(line: str, location: str) -> GoldenQuestion:
    try:
        return GoldenQuestion.model_validate(json.loads(line))
    except json.JSONDecodeError as error:
        raise InvalidRequest(f"{location} is no JSON: {error.msg}", code="NOT_A_TEST_SET", remedy=EXPECTED_FORMAT) from error
    except ValidationError as error:
        raise InvalidRequest(f"{location}: {format_validation_errors(error)}", code="NOT_A_TEST_SET", remedy=EXPECTED_FORMAT) from error


def format_validation_errors(error: ValidationError, max_errors: int = 5) -> str:
    details: Sequence[dict[str, object]] = error.errors(include_input=False)[:max_errors]  # type: ignore[assignment]
    return "; ".join(f"{'.'.join(map(str, detail['loc'])) or 'value'}: {detail['msg']}" for detail in details)  # type: ignore[call-overload]
