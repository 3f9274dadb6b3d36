"""Write rows that belong to no generation: generations, sources, collections, erasures, runs,
feedback, facts, dead letters.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from schemas.query_rows import (
    FactDecisionRow,
    FactEventRow,
    FactRetractedRow,
    FactRow,
    FeedbackRow,
    RunRow,
)
from schemas.rows import (
    AuditRow,
    CalibrationRow,
    CollectionDeletedRow,
    CollectionDeletionRow,
    CollectionProfileRow,
    DeadLetterClosedRow,
    DeadLetterRow,
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
from sql.access import insert_audit_event
from sql.collections import write_collection_row
from sql.encoding import replace_nul
from sql.entities import upsert_alias
from sql.erasure import write_erasure_row
from sql.exams import insert_exam, upsert_calibration
from sql.facts import write_fact_row
from sql.partitions import create_partitions
from sql.pool import Connection
from sql.query_loader import load_query


async def write_shared_rows(connection: Connection, rows: Iterable[Row]) -> None:
    """Write rows in order, one by one: there are few, and later ones depend on earlier ones."""
    for row in rows:
        match row:
            case GenerationRow():
                await _create_generation(connection, row)
            case GenerationBuiltRow(generation=name, barrier=barrier):
                await connection.execute(load_query("mark_generation_built"), name, barrier)
            case LiveGenerationRow(generation=name, decided_at=offset):
                await connection.execute(load_query("promote"), name, offset)
            case GenerationDroppedRow(generation=name):
                await connection.execute(load_query("mark_generation_dropped"), name)
            case ExamRow(exam=exam):
                await insert_exam(connection, exam)
            case CalibrationRow(calibration=calibration, decided_at=offset):
                await upsert_calibration(connection, calibration, offset)
            case EntityAliasRow():
                await upsert_alias(connection, row)
            case CollectionProfileRow() | CollectionDeletionRow() | CollectionDeletedRow():
                await write_collection_row(connection, row)
            case SourceRow(spec=spec, epoch=epoch):
                await connection.execute(
                    load_query("declare_source"),
                    spec.name,
                    spec.ce_source,
                    spec.model_dump(mode="json"),
                    epoch,
                )
            case SourceRemovedRow(source=name, withdraw=withdraw):
                await connection.execute(load_query("end_source"), name, withdraw)
            case SourceResetRow(source=name, reset=reset):
                await connection.execute(
                    load_query("reset_source"), name, reset.epoch, reset.model_dump(mode="json")
                )
            case ErasureRequestRow() | KeysDestroyedRow() | ErasureReceiptRow():
                await write_erasure_row(connection, row)
            case RunRow():
                await connection.execute(load_query("upsert_run"), *_to_run_values(row))
            case FeedbackRow():
                await connection.execute(load_query("insert_feedback"), *_to_feedback_values(row))
            case FactRow() | FactEventRow() | FactDecisionRow() | FactRetractedRow():
                await write_fact_row(connection, row)
            case AuditRow():
                await insert_audit_event(connection, row)
            case DeadLetterClosedRow():
                await connection.execute(
                    load_query("close_dead_letter"),
                    row.event_id,
                    row.stage,
                    row.generation or "",
                    row.resolution,
                    replace_nul(row.reason),
                    row.closed_at,
                )
            case DeadLetterRow():
                await connection.execute(
                    load_query("upsert_dead_letter"), *_to_dead_letter_values(row)
                )
            case _:
                raise TypeError(
                    f"{type(row).__name__} belongs to a document: its stage needs the ordering "
                    "policy `latest` or `visible`"
                )


async def _create_generation(connection: Connection, row: GenerationRow) -> None:
    values = row.generation.model_dump(mode="json")
    columns = [values[name] for name in ("name", "config", "how", "topics", "state")]
    inserted_name = await connection.fetchval(
        load_query("insert_generation"), *columns, row.base, row.purpose
    )
    # A repeated event: partitions and pointer exist already.
    if inserted_name is None:
        return
    # The first generation is live at once and needs its indexes from the start.
    await create_partitions(connection, row.generation, indexed=row.base is None)
    # The table has one row, so only the first generation ever gets it.
    if await connection.fetchval(load_query("insert_live_generation"), row.generation.name):
        await connection.execute(load_query("mark_generation_live"), row.generation.name)


def _to_run_values(row: RunRow) -> tuple[Any, ...]:
    return (
        row.run_id,
        row.tenant,
        row.kind,
        row.request,
        row.received_at,
        row.generation,
        row.response,
        row.answered_at,
        row.candidates,
        row.numbers,
        row.run_record,
        row.requested_by,
        row.deadline,
        dict(row.steps),
        row.stopped,
        row.process_id,
    )


def _to_feedback_values(row: FeedbackRow) -> tuple[Any, ...]:
    judgements = [passage.model_dump(mode="json") for passage in row.judgements]
    return (
        row.feedback_id,
        row.tenant,
        row.given_at,
        row.run_id,
        replace_nul(row.query),
        row.useful,
        replace_nul(row.corrected_answer),
        replace_nul(row.note),
        judgements,
        row.candidate_rejected,
    )


def _to_dead_letter_values(row: DeadLetterRow) -> tuple[Any, ...]:
    record, headers = (
        blob.model_dump(mode="json") if blob else None for blob in (row.record, row.headers)
    )
    return (
        row.event_id,
        row.stage,
        row.generation or "",
        replace_nul(row.original_type),
        replace_nul(row.tenant),
        row.document_id,
        row.topic,
        row.partition,
        row.offset,
        row.code,
        replace_nul(row.detail),
        replace_nul(row.remedy),
        replace_nul(row.traceback),
        row.attempts,
        record,
        replace_nul(row.producer_event_id),
        replace_nul(row.producer_source),
        row.dead_lettered_at,
        headers,
        row.appended_at,
        row.document_summary.model_dump(exclude_none=True) if row.document_summary else None,
    )
