"""All events of the system, each declared once.

JSON Schemas and the AsyncAPI document are generated from these.
"""

from schemas.events.audit import AuditRecorded
from schemas.events.catalog import list_event_classes, map_event_classes
from schemas.events.control import (
    GenerationBuilt,
    GenerationCreated,
    GenerationDropped,
    GenerationPromoted,
)
from schemas.events.dead_letters import DeadLetterClosed, EventDeadLettered
from schemas.events.envelope import Event, EventData
from schemas.events.erasure import ErasureCompleted, ErasureRequested, KeysDestroyed
from schemas.events.feedback import FeedbackGiven
from schemas.events.outcomes import (
    DocumentFailed,
    DocumentIndexed,
    DocumentSuperseded,
    RemovalCompleted,
)
from schemas.events.pipeline import (
    AmendmentAccepted,
    ChunksEmbedded,
    DocumentAccepted,
    DocumentChunked,
    DocumentRemoved,
    DocumentTranscribed,
    EntitiesExtracted,
    PipelineEventData,
)
from schemas.events.raw import Content, DocumentAmended, DocumentReceived, DocumentWithdrawn
from schemas.events.sources import SourceAdded, SourceRemoved, SourceReset
from schemas.events.usage import QueryAnswered, QueryReceived

__all__ = [
    "AmendmentAccepted",
    "AuditRecorded",
    "DeadLetterClosed",
    "ChunksEmbedded",
    "Content",
    "PipelineEventData",
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
    "EventData",
    "EventDeadLettered",
    "Event",
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
    "list_event_classes",
    "map_event_classes",
]
