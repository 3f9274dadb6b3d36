"""Passages as the record of a run keeps them, and as they are read from it again: everything but their texts, which the record names by their hash."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from schemas.ids import sha256_hex
from schemas.ports.search import ChunkView, ParentView
from schemas.runs import PastChunk, PastParent

OF_A_CHUNK = (
    *("parent_id", "document_id", "revision", "external_id", "title", "source_uri", "language", "kind", "prefix"),
    *("char_start", "char_end", "ordinal"),
)
OF_A_PARENT = ("document_id", "section", "char_start", "char_end", "tokens", "ordinal")
"""Fields that record and view have in common."""
UNUSED: dict[str, Any] = {"positions": {}, "background_dense": None, "background_maxsim": None, "states": None}
"""What only channels and rerankers look at: of them the record has the numbers."""


def text_hash(text: str) -> str:
    return sha256_hex(text.encode())


def kept_chunk(view: ChunkView) -> PastChunk:
    spans = [dict(span) for span in view.spans]
    return PastChunk(id=view.chunk_id, order=list(view.order), spans=spans, text_sha256=text_hash(view.text), **_fields(view, OF_A_CHUNK))


def read_chunk(kept: PastChunk, text: str) -> ChunkView:
    return ChunkView(chunk_id=kept.id, order=tuple(kept.order), spans=kept.spans, text=text, **_fields(kept, OF_A_CHUNK), **UNUSED)


def unread_chunk(chunk_id: UUID, parent_id: UUID, document_id: UUID, text: str) -> ChunkView:
    """One that was ranked and not read: nothing but its text is asked for."""
    nothing: dict[str, Any] = dict.fromkeys(("external_id", "title", "source_uri", "language"))
    place: dict[str, Any] = {"order": (), "revision": 0, "kind": "paragraph", "prefix": "", "char_start": 0, "char_end": len(text), "spans": [], "ordinal": 0}
    return ChunkView(chunk_id=chunk_id, parent_id=parent_id, document_id=document_id, text=text, **nothing, **place, **UNUSED)


def kept_parent(view: ParentView, children: Iterable[ChunkView]) -> PastParent:
    """`children` are those that could be quoted."""
    quotable = [child.chunk_id for child in children]
    return PastParent(id=view.parent_id, pages=list(view.pages), text_sha256=text_hash(view.text), children=quotable, **_fields(view, OF_A_PARENT))


def read_parent(kept: PastParent, text: str) -> ParentView:
    return ParentView(parent_id=kept.id, pages=kept.pages, text=text, **_fields(kept, OF_A_PARENT))


def _fields(passage: object, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(passage, name) for name in names}
