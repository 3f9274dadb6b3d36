"""The request to compare two generations: questions and known judgements."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Self
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from schemas.channels import Channel
from schemas.errors import InvalidRequest
from schemas.judgements import MAX_QUOTE_CHARS, Grade
from schemas.questions import Filters, QueryText
from schemas.timestamps import Timestamp
from schemas.values import Value

EXPECTED_FORMAT = 'Write one JSON object per line: {"query": "…", "judgements": [{"external_id": "…", "quote": "…", "grade": 3}]}.'


class CharacterSpan(Value):
    char_start: int = Field(ge=0, description="Offset of the first character.")
    char_end: int = Field(ge=0, description="Offset after the last character.")


class GoldenJudgement(Value):
    """A judged passage, given by quote, by character range, or both; without either, the whole
    document.
    """

    external_id: str | None = Field(
        None,
        description="External id of the document. For a document without one, its source URI or file name.",
    )
    document_id: UUID | None = Field(
        None, description="Id of the document, instead of `external_id`."
    )
    revision: int | None = Field(
        None,
        description="Revision that the character range refers to. A quote may have moved since.",
    )
    span: CharacterSpan | None = Field(None, description="Character range of the passage.")
    quote: str | None = Field(
        None, min_length=1, max_length=MAX_QUOTE_CHARS, description="Text of the passage."
    )
    grade: Grade = 1

    @model_validator(mode="after")
    def check_document_named(self) -> Self:
        if self.external_id is None and self.document_id is None:
            raise ValueError("set external_id or document_id")
        return self


class GoldenQuestion(BaseModel):
    """A question with known judgements."""

    model_config = ConfigDict(extra="forbid")

    query: QueryText = Field(description="The question.")
    judgements: list[GoldenJudgement] = Field(
        default=[], max_length=1000, description="Relevant and irrelevant passages."
    )
    language: str | None = Field(
        None, description="Language of the question as a BCP 47 tag. Detected if omitted."
    )
    filters: Filters = Field(Filters(), description="Conditions that the documents must match.")
    channels: list[Channel] | None = Field(
        None, min_length=1, description="Search only these channels."
    )


class ComparisonRequest(BaseModel):
    """Compare with golden questions, and with real questions asked between `since` and `until`."""

    model_config = ConfigDict(extra="forbid")

    golden: list[GoldenQuestion] = Field(
        default=[], max_length=5000, description="Questions with known judgements."
    )
    since: Timestamp | None = Field(
        None,
        description="Start of the period for real questions and feedback. UTC if no time zone is given.",
    )
    until: Timestamp | None = Field(None, description="End of the period.")
    queries: int = Field(
        200, ge=0, le=5000, description="Maximum number of real questions, the latest first."
    )
    answers: bool = Field(
        False,
        description=(
            "Also write answers with the chat model, at the cost of its tokens. Otherwise only ranking and refusals are compared."
        ),
    )
    profile: str | None = Field(
        None, description="Profile to use instead of the one of each question."
    )


class ComparisonBody(ComparisonRequest):
    a: str = Field(description="Generation to compare with.")
    b: str = Field(description="Generation to compare.")


def read_golden(path: Path) -> list[GoldenQuestion]:
    """Read golden questions. Raises InvalidRequest with the line number."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise _invalid_format(f"Cannot read {path}: {error}") from error
    return [
        _parse_question(line, f"{path.name} line {number}")
        for number, line in enumerate(lines, 1)
        if line.strip()
    ]


def _parse_question(line: str, location: str) -> GoldenQuestion:
    try:
        return GoldenQuestion.model_validate(json.loads(line))
    except json.JSONDecodeError as error:
        raise _invalid_format(f"{location} is not valid JSON: {error.msg}.") from error
    except ValidationError as error:
        raise _invalid_format(f"{location}: {format_validation_errors(error)}.") from error


def _invalid_format(detail: str) -> InvalidRequest:
    return InvalidRequest(detail, code="NOT_A_TEST_SET", remedy=EXPECTED_FORMAT)


def format_validation_errors(error: ValidationError, max_errors: int = 5) -> str:
    details: Sequence[dict[str, object]] = error.errors(include_input=False)[:max_errors]  # type: ignore[assignment]
    paths = [".".join(map(str, detail["loc"])) for detail in details]  # type: ignore[call-overload]
    return "; ".join(
        f"{path or 'value'}: {detail['msg']}" for path, detail in zip(paths, details, strict=True)
    )
