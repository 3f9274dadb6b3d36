"""Rows that no generation owns: generations themselves, questions, dead letters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from schemas.rows import (
    AuditRow,
    BuiltRow,
    ClosedRow,
    DeadLetterRow,
    DestroyedRow,
    DroppedRow,
    ErasureRow,
    FeedbackRow,
    GenerationRow,
    LiveRow,
    ReceiptRow,
    Row,
    RunRow,
    SourceEndRow,
    SourceResetRow,
    SourceRow,
)
from sql.audit import insert_audit_event
from sql.partitions import create_partitions
from sql.pool import Connection
from sql.receipts import record_erasure
from sql.source_decisions import declare
from sql.statements import statement
from sql.storable import text


async def write_decisions(connection: Connection, rows: Iterable[Row]) -> None:
    """One at a time and in order: they are few, and later ones build on earlier ones."""
    for row in rows:
        match row:
            case GenerationRow():
                await _create(connection, row)
            case BuiltRow(generation=name, barrier=barrier):
                await connection.execute(statement("generation_built"), name, barrier)
            case LiveRow(generation=name, decided_at=offset):
                await connection.execute(statement("promote"), name, offset)
            case DroppedRow(generation=name):
                await connection.execute(statement("generation_dropped"), name)
            case SourceRow() | SourceEndRow() | SourceResetRow():
                await declare(connection, row)
            case ErasureRow() | DestroyedRow() | ReceiptRow():
                await record_erasure(connection, row)
            case RunRow():
                await connection.execute(statement("answer_run"), *_run(row))
            case FeedbackRow():
                await connection.execute(statement("give_feedback"), *_feedback(row))
            case AuditRow():
                await insert_audit_event(connection, row)
            case ClosedRow():
                await connection.execute(statement("close_letter"), *(row.event_id, row.stage, row.generation or "", row.how, text(row.reason), row.closed_at))
            case DeadLetterRow():
                await connection.execute(statement("bury"), *_dead_letter(row))
            case _:
                raise TypeError(f"{type(row).__name__} belongs to a document: its stage must count by `latest` or `visible`")


async def _create(connection: Connection, row: GenerationRow) -> None:
    """The first one answers from the start, and needs its indexes from the start."""
    values = row.generation.model_dump(mode="json")
    columns = [values[name] for name in ("name", "config", "how", "topics", "state")]
    new = await connection.fetchval(
        "insert into generations (name, config, how, topics, state, base, purpose) values ($1, $2, $3, $4, $5, $6, $7) on conflict do nothing returning name",
        *columns,
        row.base,
        row.purpose,
    )
    if new is None:
        return
    await create_partitions(connection, row.generation, indexed=row.base is None)
    if await connection.fetchval("insert into live_generation (name) values ($1) on conflict do nothing returning name", row.generation.name):
        await connection.execute("update generations set state = 'live' where name = $1", row.generation.name)


def _run(row: RunRow) -> tuple[Any, ...]:
    return (
        *(row.run_id, row.tenant, row.kind, row.request, row.received_at, row.generation, row.response, row.answered_at),
        *(row.candidates, row.numbers, row.basis, row.asked_by),
    )


def _feedback(row: FeedbackRow) -> tuple[Any, ...]:
    judged = [passage.model_dump(mode="json") for passage in row.judgements]
    return (row.feedback_id, row.tenant, row.given_at, row.run_id, text(row.query), row.useful, text(row.corrected_answer), text(row.note), judged)


def _dead_letter(row: DeadLetterRow) -> tuple[Any, ...]:
    record, headers = (blob.model_dump(mode="json") if blob else None for blob in (row.record, row.headers))
    return (
        *(row.event_id, row.stage, row.generation or "", text(row.buried_type), text(row.tenant), row.document_id, row.topic, row.partition, row.offset),
        *(row.code, text(row.detail), text(row.remedy), text(row.traceback), row.attempts, record),
        *(text(row.producer_event_id), text(row.producer_source), row.buried_at, headers, row.appended_at),
        row.said.model_dump(exclude_none=True) if row.said else None,
    )
