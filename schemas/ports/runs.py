"""What it takes to answer a past question again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol
from uuid import UUID

from schemas.principals import Principal
from schemas.run_diffs import DocumentNow


class PastText(Protocol):
    """A chunk or a parent, and what its text was."""

    @property
    def id(self) -> UUID: ...

    @property
    def document_id(self) -> UUID: ...

    @property
    def text_sha256(self) -> str: ...


class PastTexts(Protocol):
    """Texts as past answers read them, also those of superseded revisions and of generations that were dropped."""

    async def find(self, caller: Principal, wanted: Sequence[PastText]) -> Mapping[UUID, str]:
        """By the id of chunk or parent; each has the hash that was asked for. What is nowhere any more (an erased document's) is left out."""


class DocumentsNow(Protocol):
    async def now(self, caller: Principal, documents: Sequence[UUID]) -> Mapping[UUID, DocumentNow]:
        """What became of them; those that are not known (any more) are left out."""
