"""What a question leaves behind besides its candidates, so that it can be answered again as it was: texts by their hash, never the texts themselves."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from pydantic import Field

from schemas.profiles import Profile
from schemas.questions import Channel
from schemas.values import Value


class RecordedChunk(Value):
    """A child chunk as an answer read it. `text_sha256` is of its text as UTF-8."""

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
    text_sha256: str


class RecordedParent(Value):
    """A parent chunk as an answer read it, with those of its children that could be quoted."""

    id: UUID
    document_id: UUID
    section: str
    char_start: int
    char_end: int
    pages: list[int]
    tokens: int
    ordinal: int
    text_sha256: str
    children: list[UUID] = []


class RecordedReply(Value):
    """What a chat model said when it was asked for the answer."""

    data: dict[str, Any]
    model: str
    calls: int
    tokens: int


class RecordedDraft(Value):
    """How the answer was made: by whom, with which scores of which sentences, at what cost."""

    model: str
    closeness: list[float] | None = Field(None, description="of the sentences that were looked at closely, in their order; null where words alone chose")
    reply: RecordedReply | None = None
    assumptions: list[str] = []
    limitations: list[str] = []
    calls: int = 0
    tokens: int = 0


class RunRecord(Value):
    """What the steps from fusion on were given, besides the candidates and their numbers."""

    profile: Profile
    question: str
    language: str | None = None
    language_sure: bool
    keywords: list[str]
    complete: list[Channel] = Field(description="channels that gave all they had")
    linked: list[str] = Field(description="keys of the entities that the question names")
    parents: list[RecordedParent]
    chunks: list[RecordedChunk]
    draft: RecordedDraft | None = Field(None, description="null where nothing was answered")
    missing_collections: list[str] = Field([], description="that the filters named and no document had")
