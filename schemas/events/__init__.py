"""All events of the system, each declared once.

JSON Schemas and the AsyncAPI document are generated from these.
"""

from schemas.events import (
    control,
    dead_letters,
    documents,
    facts,
    outcomes,
    runs,
    standing_questions,
)
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
    ExperimentConfigured,
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
from schemas.events.documents import (
    AmendmentAccepted,
    ChunksEmbedded,
    Content,
    DocumentAccepted,
    DocumentAmended,
    DocumentChunked,
    DocumentReceived,
    DocumentRemoved,
    DocumentTranscribed,
    DocumentWithdrawn,
    EntitiesExtracted,
    PipelineEventData,
)
from schemas.events.envelope import Event, EventData, build_root_event
from schemas.events.facts import FactApproved, FactProposed, FactRejected, FactRetracted
from schemas.events.outcomes import (
    DocumentFailed,
    DocumentIndexed,
    DocumentSuperseded,
    RemovalCompleted,
)
from schemas.events.runs import (
    FeedbackGiven,
    QueryAnswered,
    QueryReceived,
    RunProgressed,
    RunStarted,
    RunStopped,
)
from schemas.events.standing_questions import AnswerChanged, QuestionDeleted, QuestionSaved


def list_event_classes() -> tuple[type[EventData], ...]:
    """List the events of these modules as they are defined: by topic, upstream first."""
    modules = (documents, outcomes, runs, facts, standing_questions, control, dead_letters)
    return tuple(
        member
        for module in modules
        for member in vars(module).values()
        if getattr(member, "__module__", "") == module.__name__ and "topic" in vars(member)
    )
