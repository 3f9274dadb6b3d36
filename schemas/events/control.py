"""Decisions of operators, audit and erasures: topic `control`."""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from uuid import UUID

from pydantic import Field

from schemas.events.envelope import EventData
from schemas.exams import Calibration, Exam
from schemas.experiments import Experiment
from schemas.generations import ChunkSizes, EntitySchema, Generation
from schemas.principals import Role
from schemas.sources import SequenceReset, SourceSpec
from schemas.topics import CONTROL

Purpose = Literal["first", "rebuild", "reindex"]


class GenerationCreated(EventData, name="generation.created", topic=CONTROL):
    """A generation was created. Its configuration is final."""

    generation: Generation
    base: str | None = Field(None, description="The generation that was live at the time.")
    purpose: Purpose = "first"
    """`rebuild`: from the same derived events, without calling engines. `reindex`: with another
    configuration.
    """


class GenerationBuilt(EventData, name="generation.built", topic=CONTROL):
    """A generation processed every event below the barrier and built its indexes.

    It can be compared and promoted.
    """

    generation: str
    barrier: dict[str, dict[int, int]] = {}
    """Topic → partition → next offset, for the topics that the generation reads but does not write.
    """


class GenerationPromoted(EventData, name="generation.promoted", topic=CONTROL):
    """A generation became live; the previous one is on standby."""

    generation: str
    previous: str | None = Field(None, description="The generation that was live before.")


class GenerationDropped(EventData, name="generation.dropped", topic=CONTROL):
    """A generation was dropped permanently, with its tables."""

    generation: str


class ExamCompleted(EventData, name="exam.completed", topic=CONTROL):
    """A generation was examined with questions made from its own documents."""

    exam: Exam


class GenerationCalibrated(EventData, name="generation.calibrated", topic=CONTROL):
    """Thresholds for refusing and trimming were learned for a generation."""

    calibration: Calibration


class EntityAmended(EventData, name="entity.amended", topic=CONTROL, is_sealed=True):
    """A person added or removed aliases of an entity."""

    tenant: str
    entity_id: UUID
    """Id of the entity, which derives from its tenant, type and normalized name."""
    add_aliases: list[str] = []
    remove_aliases: list[str] = []


class EntityRetyped(EventData, name="entity.retyped", topic=CONTROL, is_sealed=True):
    """A person changed the type of an entity."""

    tenant: str
    entity_id: UUID = Field(description="Id of the entity, which stays.")
    type: str | None = Field(None, description="Null: the type that documents state.")


class EntityMerged(EventData, name="entity.merged", topic=CONTROL, is_sealed=True):
    """A person decided that two entities are one."""

    tenant: str
    entity_id: UUID = Field(description="Id of the entity that becomes part of the other one.")
    into: UUID = Field(description="Id of the other one, which gives its name and its type.")
    into_type: str = Field(description="Type that documents state of it.")


class EntitySplit(EventData, name="entity.split", topic=CONTROL, is_sealed=True):
    """A person decided that a merged entity is one of its own."""

    tenant: str
    entity_id: UUID = Field(description="Id of the merged entity.")


class AuditRecorded(EventData, name="audit.recorded", topic=CONTROL):
    """A caller performed an action that requires an administrator or an operator.

    The event contains no secrets.
    """

    audit_id: UUID
    actor: str
    """Caller: `local`, `key:<key id>`, `jwt:<subject>`, or `cli:<account>` for a command with
    direct database access.
    """
    role: Role = Field(description="Role of the caller.")
    action: str = Field(description="The action, such as `source.added`.")
    subject: str | None = Field(None, description="What the action applied to.")
    tenant: str
    occurred_at: datetime
    request_id: str | None = None
    outcome: str = Field("done", description="`done`, or the code of the error.")


class SourceAdded(EventData, name="source.added", topic=CONTROL):
    """A source was added."""

    source: SourceSpec = Field(description="The source and its settings.")
    epoch: int = 1
    """Greater than the epoch of an earlier source of the same name, so that withdrawn documents can
    return.
    """


class SourceRemoved(EventData, name="source.removed", topic=CONTROL):
    """A source was removed. Its documents stay unless `withdraw` is set."""

    source: str = Field(description="Name of the source.")
    withdraw: bool = Field(False, description="Withdraw all documents of the source.")
    tenant: str | None = Field(None, description="Tenant of the source.")


class SourceReset(EventData, name="source.reset", topic=CONTROL):
    """The sequence numbers of a source restart, because its database was restored."""

    source: str
    """Name of the source, or the ce_source of an external producer that numbers its changes."""
    reset: SequenceReset
    tenant: str | None = Field(None, description="Tenant of the source.")


Scope = Literal["document", "collection", "tenant", "fact"]


class ErasureRequested(EventData, name="erasure.requested", topic=CONTROL):
    """Permanent erasure of documents or of a fact was requested."""

    receipt_id: UUID = Field(description="Id of the request and its receipt.")
    tenant: str
    scope: Scope = Field(description="What to erase.")
    subject: str
    """Id of the document or fact, or name of the collection or the tenant."""
    requested_at: datetime


class KeysDestroyed(EventData, name="key.destroyed", topic=CONTROL):
    """Encryption keys were destroyed, so that their payloads are unreadable.

    Applied again at every start, since the keystore may have been restored from a backup.
    """

    receipt_id: UUID
    tenant: str
    keys: list[UUID] = Field(description="Ids of the destroyed keys.")


class ErasureCompleted(EventData, name="erasure.completed", topic=CONTROL):
    """The receipt of an erasure."""

    receipt_id: UUID
    tenant: str
    documents: int = Field(description="Number of erased documents.")
    removed: dict[str, int]
    """Location → number of removed rows, blobs or keys."""
    events: int = Field(description="Number of events in the log that became unreadable.")
    method: str
    """Effect on the log: `keys destroyed`, or `nothing` if the tenant's events are not
    encrypted.
    """
    remains: list[str] = Field(description="Locations that still hold data, and until when.")
    raw_until: datetime | None = None
    """When the last original event expires from topic `raw`."""
    completed_at: datetime


class CollectionConfigured(EventData, name="collection.configured", topic=CONTROL):
    """The settings of a collection, all of them, were set or unset.

    How documents are split and what is extracted holds for those transcribed later.
    """

    tenant: str
    collection: str = Field(description="Name of the collection.")
    default_profile: str | None = None
    """Workflow profile of questions that name the collection and no profile."""
    chunking: str | None = Field(None, description="Chunking profile that `chunk` was read from.")
    chunk: ChunkSizes | None = Field(None, description="How its documents are split.")
    extract: EntitySchema | None = Field(None, description="What is extracted from them.")


class ExperimentConfigured(EventData, name="experiment.configured", topic=CONTROL):
    """An experiment with two profiles was started or stopped."""

    tenant: str
    experiment: Experiment = Field(description="The experiment as it is from now on.")


class CollectionDeletionRequested(EventData, name="collection.deletion_requested", topic=CONTROL):
    """The deletion of a collection was requested. It loses its default profile at once.

    The log's time of this event decides which documents are deleted: those that the log received
    before it.
    """

    deletion_id: UUID
    tenant: str
    collection: str = Field(description="Name of the collection.")
    requested_at: datetime


class CollectionDeleted(EventData, name="collection.deleted", topic=CONTROL):
    """Every document that a deletion covers is withdrawn."""

    deletion_id: UUID
    tenant: str
    collection: str = Field(description="Name of the collection.")
    completed_at: datetime
