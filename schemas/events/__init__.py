"""All events of the system, each declared once.

JSON Schemas and the AsyncAPI document are generated from these.
"""

from schemas.events import control, dead_letters, facts, outcomes, pipeline, raw, runs
from schemas.events.control import (
    AuditRecorded,
    CollectionConfigured,
    CollectionDeleted,
    CollectionDeletionRequested,
    EntityAmended,
    EntityMerged,
    EntityRetyped,
    EntitySplit,
    ErasureCompleted,
    ErasureRequested,
    ExamCompleted,
    GenerationBuilt,
    GenerationCalibrated,
    GenerationCreated,
    GenerationDropped,
    GenerationPromoted,
    KeysDestroyed,
    SourceAdded,
    SourceRemoved,
    SourceReset,
)
from schemas.events.dead_letters import DeadLetterClosed, EventDeadLettered
from schemas.events.envelope import Event, EventData
from schemas.events.facts import FactApproved, FactProposed, FactRejected, FactRetracted
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
from schemas.events.runs import (
    FeedbackGiven,
    QueryAnswered,
    QueryReceived,
    RunProgressed,
    RunStarted,
    RunStopped,
)

__all__ = [
    "AmendmentAccepted",
    "AuditRecorded",
    "CollectionConfigured",
    "CollectionDeleted",
    "CollectionDeletionRequested",
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
    "EntityAmended",
    "EntityMerged",
    "EntityRetyped",
    "EntitySplit",
    "ErasureCompleted",
    "ErasureRequested",
    "EventData",
    "EventDeadLettered",
    "Event",
    "ExamCompleted",
    "FactApproved",
    "FactProposed",
    "FactRejected",
    "FactRetracted",
    "FeedbackGiven",
    "GenerationBuilt",
    "GenerationCalibrated",
    "GenerationCreated",
    "GenerationDropped",
    "GenerationPromoted",
    "KeysDestroyed",
    "QueryAnswered",
    "QueryReceived",
    "RunProgressed",
    "RunStarted",
    "RunStopped",
    "RemovalCompleted",
    "SourceAdded",
    "SourceRemoved",
    "SourceReset",
    "list_event_classes",
]


def list_event_classes() -> tuple[type[EventData], ...]:
    """List the events of these modules, by topic, upstream first."""
    modules = (raw, pipeline, outcomes, runs, facts, control, dead_letters)
    return tuple(event_class for module in modules for event_class in module.EVENTS)
