"""Relations and claims of the graph as candidates for the context of an answer."""

from __future__ import annotations

from typing import Literal
from uuid import UUID

from pydantic import Field

from schemas.values import Value

GraphFactKind = Literal["relation", "claim"]


class GraphEvidence(Value):
    """A relation or claim about an entity that the question names, and where a chunk states it.

    Names and values are places in the document's Markdown, so that each is read from the text.
    """

    kind: GraphFactKind
    hop: int = Field(description="Relations from a named entity to this one; 0 for a claim.")
    predicate: str = Field(description="Type of the relation, or property that is claimed.")
    weight: float
    subject_id: UUID
    object_id: UUID | None = Field(None, description="Null for a claim.")
    subject_seed: int | None = Field(
        None, description="Number of the name in the question, if the question names the subject."
    )
    object_seed: int | None = Field(
        None, description="Number of the name in the question, if the question names the object."
    )
    subject_span: tuple[int, int]
    object_span: tuple[int, int]
    document_id: UUID
    parent_id: UUID
    chunk_id: UUID
    char_start: int = Field(description="Start of the evidence: a sentence, or the claimed value.")
    char_end: int
