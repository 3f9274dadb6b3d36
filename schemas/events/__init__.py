"""Every fact that the system can state, each declared once. The JSON Schemas and the AsyncAPI document are generated from these."""

from schemas.events.audit import AuditRecorded
from schemas.events.catalogue import declared, event_types
from schemas.events.control import GenerationBuilt, GenerationCreated, GenerationDropped, GenerationPromoted
from schemas.events.dead_letters import BurialClosed, EventBuried
from schemas.events.declaration import Event, Fact
from schemas.events.erasure import ErasureCompleted, ErasureRequested, KeysDestroyed
from schemas.events.feedback import FeedbackGiven
from schemas.events.outcomes import DocumentFailed, DocumentIndexed, DocumentSuperseded, RemovalCompleted
from schemas.events.pipeline import (
    AmendmentAccepted,
    ChunksEmbedded,
    Derived,
    DocumentAccepted,
    DocumentChunked,
    DocumentRemoved,
    DocumentTranscribed,
    EntitiesExtracted,
)
from schemas.events.raw import Content, DocumentAmended, DocumentReceived, DocumentWithdrawn
from schemas.events.sources import SourceAdded, SourceRemoved, SourceReset
from schemas.events.usage import QueryAnswered, QueryReceived

__all__ = [
    "AmendmentAccepted",
    "AuditRecorded",
    "BurialClosed",
    "ChunksEmbedded",
    "Content",
    "Derived",
    "DocumentAccepted",
    "DocumentAmended",
    "DocumentChunked",
    "DocumentFailed",
    "DocumentIndexed",
    "DocumentReceived",
    "DocumentRemoved",
    "DocumentSuperseded",
    "DocumentTranscribed",
    "DocumentWithdrawn",
    "EntitiesExtracted",
    "ErasureCompleted",
    "ErasureRequested",
    "Event",
    "EventBuried",
    "Fact",
    "FeedbackGiven",
    "GenerationBuilt",
    "GenerationCreated",
    "GenerationDropped",
    "GenerationPromoted",
    "KeysDestroyed",
    "QueryAnswered",
    "QueryReceived",
    "RemovalCompleted",
    "SourceAdded",
    "SourceRemoved",
    "SourceReset",
    "declared",
    "event_types",
]
