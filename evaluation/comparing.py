"""What a comparison of two generations is asked with: questions, where from, and what is known of their answers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Self
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from schemas.errors import InvalidRequest
from schemas.judgements import QUOTE, Grade
from schemas.moments import Moment
from schemas.questions import Asked, Channel, Filters
from schemas.values import Value

SHAPE = 'One JSON object a line: {"query": "…", "judgements": [{"external_id": "…", "quote": "…", "grade": 3}]}.'


class Characters(Value):
    char_start: int = Field(ge=0)
    char_end: int = Field(ge=0)


class GoldenJudgement(Value):
    """A passage by its quote, by its place, or both; with neither, the document as a whole."""

    external_id: str | None = Field(None, description="of a document without one, its source URI or file name")
    document_id: UUID | None = None
    revision: int | None = Field(None, description="that the place was read in; with a quote it may have changed since")
    span: Characters | None = None
    quote: str | None = Field(None, min_length=1, max_length=QUOTE)
    grade: Grade = 1

    @model_validator(mode="after")
    def names_a_document(self) -> Self:
        if self.external_id is None and self.document_id is None:
            raise ValueError("external_id or document_id must be given")
        return self


class GoldenQuestion(BaseModel):
    model_config = ConfigDict(extra="forbid")

    query: Asked
    judgements: list[GoldenJudgement] = Field(default=[], max_length=1000)
    language: str | None = None
    filters: Filters = Filters()
    channels: list[Channel] | None = Field(None, min_length=1)


class ComparisonRequest(BaseModel):
    """Golden questions, and those that were asked between `since` and `until`."""

    model_config = ConfigDict(extra="forbid")

    golden: list[GoldenQuestion] = Field(default=[], max_length=5000)
    since: Moment | None = Field(None, description="of the real questions, and of the feedback whose judgements count; UTC where no zone is given")
    until: Moment | None = None
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
        raise InvalidRequest(f"{path} cannot be read: {error}", code="NOT_A_TEST_SET", remedy=SHAPE) from error
    return [_question(line, f"{path.name} line {number}") for number, line in enumerate(lines, 1) if line.strip()]


def _question(line: str, place: str) -> GoldenQuestion:
    try:
        return GoldenQuestion.model_validate(json.loads(line))
    except json.JSONDecodeError as error:
        raise InvalidRequest(f"{place} is no JSON: {error.msg}", code="NOT_A_TEST_SET", remedy=SHAPE) from error
    except ValidationError as error:
        raise InvalidRequest(f"{place}: {problems(error)}", code="NOT_A_TEST_SET", remedy=SHAPE) from error


def problems(error: ValidationError, most: int = 5) -> str:
    found: Sequence[dict[str, object]] = error.errors(include_input=False)[:most]  # type: ignore[assignment]
    return "; ".join(f"{'.'.join(map(str, item['loc'])) or 'value'}: {item['msg']}" for item in found)  # type: ignore[call-overload]
