"""Make parents and passages from plain texts."""

from __future__ import annotations

from uuid import NAMESPACE_URL, uuid5

from schemas.ids import content_id
from schemas.ports.engines import RerankPassage
from schemas.values import ChildChunk, ParentChunk


def make_parent(*texts: str, offset: int = 1000) -> ParentChunk:
    """Make a parent of children, one per line, `offset` characters into the document."""
    whole, children = "\n".join(texts), []
    for ordinal, text in enumerate(texts):
        start = offset + len("\n".join(texts[:ordinal])) + (ordinal > 0)
        children.append(
            ChildChunk(
                id=content_id("child", text),
                ordinal=ordinal,
                text=text,
                char_start=start,
                char_end=start + len(text),
                spans=[],
                tokens=9,
            )
        )
    return ParentChunk(
        id=content_id("parent", whole),
        ordinal=0,
        text=whole,
        char_start=offset,
        char_end=offset + len(whole),
        tokens=9,
        children=children,
    )


def make_passage(text: str) -> RerankPassage:
    """Make a passage without token states."""
    return RerankPassage(uuid5(NAMESPACE_URL, text), text)
