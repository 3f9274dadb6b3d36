"""What it takes to answer a past question again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol
from uuid import UUID

from schemas.principals import Principal
from schemas.run_diffs import CurrentDocument


class RecordedText(Protocol):
    """A chunk or a parent, and what its text was."""

    @property
    def id(self) -> UUID: ...

    @property
    def document_id(self) -> UUID: ...

    @property
    def text_sha256(self) -> str: ...


class RecordedTexts(Protocol):
    """Texts as past answers read them, also those of superseded revisions and of generations that were dropped."""

    async def fetch_texts(self, caller: Principal, texts: Sequence[RecordedText]) -> Mapping[UUID, str]:
        """By the id of chunk or parent; each has the hash that was asked for. What is nowhere any more (an erased document's) is left out."""


class CurrentDocuments(Protocol):
    async def fetch_current(self, caller: Principal, document_ids: Sequence[UUID]) -> Mapping[UUID, CurrentDocument]:
        """What became of them; those that are not known (any more) are left out."""
