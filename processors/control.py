"""Project decisions into their tables: generations, which of them is live, sources, receipts of erasure, and audit events."""

from __future__ import annotations

from collections.abc import Iterable

from schemas.events import (
    AuditRecorded,
    ErasureCompleted,
    ErasureRequested,
    Fact,
    GenerationBuilt,
    GenerationCreated,
    GenerationDropped,
    GenerationPromoted,
    KeysDestroyed,
    SourceAdded,
    SourceRemoved,
    SourceReset,
)
from schemas.rows import (
    AuditRow,
    BuiltRow,
    DestroyedRow,
    DroppedRow,
    ErasureRow,
    GenerationRow,
    LiveRow,
    ReceiptRow,
    Row,
    SourceEndRow,
    SourceResetRow,
    SourceRow,
)
from streams.stage import Stage
from streams.topics import CONTROL

Decision = GenerationCreated | GenerationBuilt | GenerationPromoted | GenerationDropped | SourceAdded | SourceRemoved | SourceReset
Erasing = ErasureRequested | KeysDestroyed | ErasureCompleted


def project(fact: Fact[Decision | Erasing | AuditRecorded]) -> Iterable[Row]:
    match fact.data:
        case GenerationCreated(generation=generation, base=base, purpose=purpose):
            yield GenerationRow(generation, base, purpose)
        case GenerationBuilt(generation=name, barrier=barrier):
            yield BuiltRow(name, barrier)
        case GenerationPromoted(generation=name):
            yield LiveRow(name, fact.position.offset if fact.position else 0)
        case GenerationDropped(generation=name):
            yield DroppedRow(name)
        case ErasureRequested():
            yield ErasureRow(fact.data.receipt_id, fact.data.tenant, fact.data.scope, fact.data.subject, fact.data.requested_at)
        case KeysDestroyed(tenant=tenant, keys=keys):
            yield DestroyedRow(tenant, tuple(keys))
        case ErasureCompleted() as receipt:
            yield ReceiptRow(
                *(
                    receipt.receipt_id,
                    receipt.documents,
                    receipt.removed,
                    receipt.events,
                    receipt.method,
                    tuple(receipt.remains),
                    receipt.raw_until,
                    receipt.completed_at,
                )
            )
        case AuditRecorded() as act:
            yield AuditRow(act.audit_id, act.tenant, act.at, act.who, act.role, act.what, act.subject, act.request_id, act.outcome)
        case SourceAdded(source=spec, epoch=epoch):
            yield SourceRow(spec, epoch)
        case SourceRemoved(source=name, withdraw=withdraw):
            yield SourceEndRow(name, withdraw)
        case SourceReset(source=name, reset=reset):
            yield SourceResetRow(name, reset)


STAGE = Stage("control", CONTROL, 1, counts="always", project=project, essential=False, shared=True)
