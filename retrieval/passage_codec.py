"""Convert passages to and from run records. Texts are recorded by their hash only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from schemas.ids import sha256_hex
from schemas.ports.search import ChunkView, ParentView
from schemas.run_records import RecordedChunk, RecordedParent

CHUNK_FIELDS = (
    *(
        "parent_id",
        "document_id",
        "revision",
        "external_id",
        "title",
        "source_uri",
        "language",
        "kind",
        "prefix",
    ),
    *("char_start", "char_end", "ordinal"),
)
# Fields that record and view have in common.
PARENT_FIELDS = ("document_id", "section", "char_start", "char_end", "tokens", "ordinal")
# Only channels and rerankers use these; the run record holds the resulting numbers.
UNRECORDED_FIELDS: dict[str, Any] = {
    "positions": {},
    "background_dense": None,
    "background_maxsim": None,
    "states": None,
}


def hash_text(text: str) -> str:
    return sha256_hex(text.encode())


def record_chunk(view: ChunkView) -> RecordedChunk:
    spans = [dict(span) for span in view.spans]
    return RecordedChunk(
        id=view.chunk_id,
        order=list(view.order),
        spans=spans,
        text_sha256=hash_text(view.text),
        **_copy_fields(view, CHUNK_FIELDS),
    )


def restore_chunk(recorded: RecordedChunk, text: str) -> ChunkView:
    return ChunkView(
        chunk_id=recorded.id,
        order=tuple(recorded.order),
        spans=recorded.spans,
        text=text,
        **_copy_fields(recorded, CHUNK_FIELDS),
        **UNRECORDED_FIELDS,
    )


def restore_unread_chunk(
    chunk_id: UUID, parent_id: UUID, document_id: UUID, text: str
) -> ChunkView:
    """Build a view of a ranked chunk that was never read: only its text is known."""
    empty_fields: dict[str, Any] = dict.fromkeys(("external_id", "title", "source_uri", "language"))
    position_fields: dict[str, Any] = {
        "order": (),
        "revision": 0,
        "kind": "paragraph",
        "prefix": "",
        "char_start": 0,
        "char_end": len(text),
        "spans": [],
        "ordinal": 0,
    }
    return ChunkView(
        chunk_id=chunk_id,
        parent_id=parent_id,
        document_id=document_id,
        text=text,
        **empty_fields,
        **position_fields,
        **UNRECORDED_FIELDS,
    )


def record_parent(view: ParentView, children: Iterable[ChunkView]) -> RecordedParent:
    """Record a parent. `children` are the chunks that could be quoted."""
    quotable = [child.chunk_id for child in children]
    return RecordedParent(
        id=view.parent_id,
        pages=list(view.pages),
        text_sha256=hash_text(view.text),
        children=quotable,
        **_copy_fields(view, PARENT_FIELDS),
    )


def restore_parent(recorded: RecordedParent, text: str) -> ParentView:
    return ParentView(
        parent_id=recorded.id,
        pages=recorded.pages,
        text=text,
        **_copy_fields(recorded, PARENT_FIELDS),
    )


def _copy_fields(passage: object, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(passage, name) for name in names}
