"""Citations of an answer: quotes, facts of the graph, and the steps of its paths."""

from __future__ import annotations

from typing import Literal
from uuid import UUID

from pydantic import Field

from schemas.values import Span, Value


class Citation(Value):
    """A verbatim quote that supports the answer, verified against the stored text."""

    n: int = Field(description="Number that the answer refers to, from 1.")
    document_id: UUID = Field(description="Id of the document.")
    external_id: str | None = Field(description="The producer's id of the document.")
    revision: int = Field(description="Revision of the document.")
    chunk_id: UUID = Field(description="Child chunk that contains the quote.")
    title: str | None = Field(description="Title of the document.")
    source_uri: str | None = Field(description="URI of the original.")
    link: str = Field(description="Link that opens the document at the quote.")
    section: str = Field(description="Heading path of the quote.")
    pages: list[int] = Field(description="Pages of the quote, from 1.")
    spans: list[Span] = Field(description="Position of the quote in the document.")
    quote: str = Field(description="Verbatim text. For a table, the row.")
    header: list[str] | None = Field(None, description="Header cells, for a quote from a table.")
    redacted: list[tuple[int, int]] = []
    """Character ranges of the quote that are redacted."""


class GraphFact(Citation):
    """A relation or claim of the graph that was read with the passages, and the quote that states
    it.
    """

    n: int = Field(description="Number among what was read, after those of the passages.")
    kind: GraphFactKind
    """Relation between two entities, or claim about a property of one."""
    subject: str = Field(description="The entity, as the quote names it.")
    predicate: str
    """Type of the relation or property, as the extractor names it: `related_to` if a sentence names
    both entities and nothing more is known. Not the document's words.
    """
    object: str = Field(description="The other entity, or the value, as the quote has it.")
    hop: int
    """Relations from an entity that the question names to this one; 0 for a claim."""


class RelationHop(Value):
    """A relation on the path between two entities that the question names."""

    subject: str = Field(description="The entity, as the quote names it.")
    predicate: str = Field(description="Type of the relation, as the extractor names it.")
    object: str = Field(description="The other entity, as the quote names it.")
    inverse: bool = Field(description="Whether the path leads from the object to the subject.")
    citations: list[int] = Field(description="Numbers of the citations that state it.")


class HopTarget(Value):
    """The document that a hop leads to."""

    document_id: UUID = Field(description="Id of the document.")
    external_id: str | None = Field(description="The producer's id of the document.")
    title: str | None = Field(description="Title of the document.")


class AnswerHop(Value):
    """A step from one document to another, over the other's name in its text."""

    name: str = Field(description="The name, as the text has it.")
    document_id: UUID = Field(description="Id of the document whose text has the name.")
    external_id: str | None = Field(description="The producer's id of the document.")
    title: str | None = Field(description="Title of the document.")
    chunk_id: UUID = Field(description="Child chunk that contains the quote.")
    link: str = Field(description="Link that opens the document at the quote.")
    spans: list[Span] = Field(description="Position of the quote in the document.")
    quote: str = Field(description="Verbatim text around the name.")
    target: HopTarget = Field(description="The document of that name.")


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
    subject_seed: int | None = None
    """Number of the name in the question, if the question names the subject."""
    object_seed: int | None = None
    """Number of the name in the question, if the question names the object."""
    subject_span: tuple[int, int]
    object_span: tuple[int, int]
    document_id: UUID
    parent_id: UUID
    chunk_id: UUID
    char_start: int = Field(description="Start of the evidence: a sentence, or the claimed value.")
    char_end: int
