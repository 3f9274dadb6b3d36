"""Project generations, sources, collections, erasures and audit events into their tables."""

from __future__ import annotations

from collections.abc import Iterable

from schemas.events import (
    AuditRecorded,
    CollectionConfigured,
    CollectionDeleted,
    CollectionDeletionRequested,
    EntityAmended,
    ErasureCompleted,
    ErasureRequested,
    Event,
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
from schemas.ports.ledger import OrderingPolicy
from schemas.rows import (
    AuditRow,
    CalibrationRow,
    CollectionDeletedRow,
    CollectionDeletionRow,
    CollectionProfileRow,
    EntityAliasRow,
    ErasureReceiptRow,
    ErasureRequestRow,
    ExamRow,
    GenerationBuiltRow,
    GenerationDroppedRow,
    GenerationRow,
    KeysDestroyedRow,
    LiveGenerationRow,
    Row,
    SourceRemovedRow,
    SourceResetRow,
    SourceRow,
)
from schemas.topics import CONTROL
from streams.stage import Stage

Decision = (
    GenerationCreated
    | GenerationBuilt
    | GenerationPromoted
    | GenerationDropped
    | ExamCompleted
    | GenerationCalibrated
    | EntityAmended
    | SourceAdded
    | SourceRemoved
    | SourceReset
)
ErasureData = ErasureRequested | KeysDestroyed | ErasureCompleted


CollectionData = CollectionConfigured | CollectionDeletionRequested | CollectionDeleted


def project(event: Event[Decision | ErasureData | CollectionData | AuditRecorded]) -> Iterable[Row]:
    # Orders decisions: one that arrives again after a later one has no effect.
    offset = event.position.offset if event.position else 0
    match event.data:
        case GenerationCreated(generation=generation, base=base, purpose=purpose):
            yield GenerationRow(generation, base, purpose)
        case GenerationBuilt(generation=name, barrier=barrier):
            yield GenerationBuiltRow(name, barrier)
        case GenerationPromoted(generation=name):
            yield LiveGenerationRow(name, offset)
        case GenerationDropped(generation=name):
            yield GenerationDroppedRow(name)
        case ExamCompleted(exam=exam):
            yield ExamRow(exam)
        case GenerationCalibrated(calibration=calibration):
            yield CalibrationRow(calibration, offset)
        case EntityAmended(tenant=tenant, entity_id=entity_id) as amended:
            for is_removed, aliases in (
                (False, amended.add_aliases),
                (True, amended.remove_aliases),
            ):
                for alias in aliases:
                    yield EntityAliasRow(tenant, entity_id, alias, is_removed, offset)
        case CollectionConfigured(tenant=tenant, collection=collection, default_profile=profile):
            yield CollectionProfileRow(tenant, collection, profile, offset)
        case CollectionDeletionRequested() as deletion:
            yield CollectionDeletionRow(
                deletion.deletion_id, deletion.tenant, deletion.collection, deletion.requested_at
            )
            yield CollectionProfileRow(deletion.tenant, deletion.collection, None, offset)
        case CollectionDeleted(deletion_id=deletion_id, completed_at=completed_at):
            yield CollectionDeletedRow(deletion_id, completed_at)
        case ErasureRequested():
            yield ErasureRequestRow(
                receipt_id=event.data.receipt_id,
                tenant=event.data.tenant,
                scope=event.data.scope,
                name=event.data.subject,
                requested_at=event.data.requested_at,
            )
        case KeysDestroyed(tenant=tenant, keys=keys):
            yield KeysDestroyedRow(tenant, tuple(keys))
        case ErasureCompleted() as receipt:
            yield ErasureReceiptRow(
                receipt_id=receipt.receipt_id,
                documents=receipt.documents,
                removed=receipt.removed,
                events=receipt.events,
                method=receipt.method,
                remains=tuple(receipt.remains),
                raw_until=receipt.raw_until,
                completed_at=receipt.completed_at,
                log_offset=offset,
            )
        case AuditRecorded() as audit:
            yield AuditRow(
                audit_id=audit.audit_id,
                tenant=audit.tenant,
                occurred_at=audit.occurred_at,
                actor=audit.actor,
                role=audit.role,
                action=audit.action,
                subject=audit.subject,
                request_id=audit.request_id,
                outcome=audit.outcome,
            )
        case SourceAdded(source=spec, epoch=epoch):
            yield SourceRow(spec, epoch)
        case SourceRemoved(source=name, withdraw=withdraw):
            yield SourceRemovedRow(name, withdraw)
        case SourceReset(source=name, reset=reset):
            yield SourceResetRow(name, reset)


STAGE = Stage(
    "control",
    CONTROL,
    1,
    ordering_policy=OrderingPolicy.ALWAYS,
    project=project,
    fails_document=False,
    serves_all_generations=True,
)
