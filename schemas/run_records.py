"""Run records: the inputs of an answer besides its candidates, so that the run can be repeated.

They reference texts by hash and never contain them.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from pydantic import Field

from schemas.channels import Channel
from schemas.profiles import Profile
from schemas.values import Value


class RecordedChunk(Value):
    """A child chunk as it was at the time of the answer."""

    id: UUID
    parent_id: UUID
    document_id: UUID
    order: list[int]
    revision: int
    external_id: str | None = None
    title: str | None = None
    source_uri: str | None = None
    language: str | None = None
    kind: str
    prefix: str
    char_start: int
    char_end: int
    spans: list[dict[str, Any]]
    ordinal: int
    text_sha256: str = Field(description="Hash of the text as UTF-8.")


class RecordedParent(Value):
    """A parent chunk as it was at the time of the answer."""

    id: UUID
    document_id: UUID
    section: str
    char_start: int
    char_end: int
    pages: list[int]
    tokens: int
    ordinal: int
    text_sha256: str = Field(description="Hash of the text as UTF-8.")
    children: list[UUID] = Field([], description="Child chunks that could be quoted.")


class RecordedReply(Value):
    """The reply of the chat model."""

    data: dict[str, Any]
    model: str
    calls: int
    tokens: int


class RecordedDraft(Value):
    """How the answer was written."""

    model: str
    closeness: list[float] | None = Field(
        None,
        description="Scores of the sentences that were compared, in their order. Null if the selection used words alone.",
    )
    reply: RecordedReply | None = None
    assumptions: list[str] = []
    limitations: list[str] = []
    calls: int = 0
    tokens: int = 0


class RunRecord(Value):
    """Inputs of the steps from fusion on, besides the candidates and their scores."""

    profile: Profile
    question: str
    language: str | None = None
    language_sure: bool = Field(description="Whether the language was detected with confidence.")
    keywords: list[str]
    complete: list[Channel] = Field(description="Channels that returned all their matches.")
    linked: list[str] = Field(description="Keys of the entities that the question names.")
    parents: list[RecordedParent]
    chunks: list[RecordedChunk]
    draft: RecordedDraft | None = Field(
        None, description="How the answer was written. Null if there was no answer."
    )
    missing_collections: list[str] = Field(
        [], description="Collections in the filters that no document has."
    )
