"""Ports for rerunning a past question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol
from uuid import UUID

from schemas.principals import Principal
from schemas.run_diffs import CurrentDocument


class RecordedText(Protocol):
    """A chunk or parent of a run record, with the hash of its text."""

    @property
    def id(self) -> UUID: ...

    @property
    def document_id(self) -> UUID: ...

    @property
    def text_sha256(self) -> str: ...


class RecordedTexts(Protocol):
    """Texts as past answers read them, including those of superseded revisions and dropped generations."""

    async def fetch_texts(
        self, caller: Principal, texts: Sequence[RecordedText]
    ) -> Mapping[UUID, str]:
        """Return texts by the id of chunk or parent, each with the recorded hash.

        Texts that no longer exist, such as those of an erased document, are omitted.
        """


class CurrentDocuments(Protocol):
    async def fetch_current(
        self, caller: Principal, document_ids: Sequence[UUID]
    ) -> Mapping[UUID, CurrentDocument]:
        """Return the current state of documents. Unknown ids are omitted."""
